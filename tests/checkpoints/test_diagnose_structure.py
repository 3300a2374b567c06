"""Networks that share no names: what shape, numbers, order and values tell, and what not."""

import copy
import itertools
import random
import string

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from migrate_kit.checkpoints.diagnose import diagnose
from migrate_kit.errors import MigrateError
from tests.checkpoints.diagnosed import Separate, Spelt, apart, randomized, unreadable
from tests.checkpoints.one_thread import one_thread  # noqa: F401

ROUNDING = 1e-4


def rules(report):
    return {row.rule.rpartition("; ")[2] for row in report.rows if row.key and row.source}


def alphabetical(state):
    return dict(sorted(state.items()))


def other_words(state, seed=0):
    """Give every layer a name that says nothing."""
    pick, names = random.Random(seed), {}  # noqa: S311 - names for a test
    for key in state:
        path = key.rpartition(".")[0]
        if path not in names:
            names[path] = "".join(pick.choices(string.ascii_lowercase, k=6))
    return {f"{names[k.rpartition('.')[0]]}.{k.rpartition('.')[2]}": v for k, v in state.items()}


# --- real networks --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sample():
    from pathlib import Path

    from migrate_kit.sample import SampleProject

    return SampleProject(Path())


def lite0():
    timm = pytest.importorskip("timm")
    return timm.create_model("tf_efficientnet_lite0").eval()


def test_efficientnet_lite0_into_timm_and_its_labels(sample):
    original, model = sample.model(), lite0()
    assert not set(original.state_dict()) & set(model.state_dict())
    report = diagnose(model, sample.weights)
    assert not report.ok
    assert len(report.matched) == len(model.state_dict()) == 296
    assert rules(report) == {"by shape", "by name", "by numbering"}
    model.load_state_dict(report.repair())
    for name in ("chelsea", "coffee", "camera", "rocket", "motorcycle"):
        x = sample.inputs(name)
        assert sample.top(model(*x), 1)[0][0] == sample.top(original(*x), 1)[0][0]


def test_efficientnet_lite0_is_proved_at_every_layer(sample):
    original, model = sample.model(), lite0()
    report = diagnose(model, sample.weights, *sample.inputs(), reference=original)
    assert "computes what the original does" in report.findings[0].what
    layers = [r for r in report.proof.rows if r.channel == "forward"]
    assert len(layers) == 99  # every convolution, BatchNorm and linear layer
    assert all(r.R <= 2 for r in report.proof.rows)
    assert report.proof.ok
    assert rules(report) == {"by shape", "by value"}


def test_efficientnet_lite0_both_ways_from_an_alphabetical_file(sample):
    x = sample.inputs("coffee")
    networks = sample.model(), randomized(lite0())
    for source, target in (networks, networks[::-1]):
        model = randomized(copy.deepcopy(target), 1)
        model.load_state_dict(diagnose(model, alphabetical(source.state_dict())).repair())
        assert apart(source, model, *x) < ROUNDING


def pairs_of_networks():
    timm = pytest.importorskip("timm")
    models = pytest.importorskip("torchvision").models
    vit = {"num_heads": 4, "num_classes": 10}
    return {
        "resnet18": (models.resnet18(), timm.create_model("resnet18")),
        "mobilenet_v2": (models.mobilenet_v2(), timm.create_model("mobilenetv2_100")),
        "vit": (
            models.VisionTransformer(
                image_size=64, patch_size=16, num_layers=3, hidden_dim=32, mlp_dim=64, **vit
            ),
            timm.models.vision_transformer.VisionTransformer(
                img_size=64, patch_size=16, depth=3, embed_dim=32, mlp_ratio=2, **vit
            ),
        ),
    }


@pytest.mark.parametrize(
    ("name", "order"),
    [("resnet18", dict), ("mobilenet_v2", alphabetical), ("vit", dict), ("vit", alphabetical)],
)
def test_torchvision_into_timm_and_back(name, order):
    x = torch.randn(2, 3, 64, 64)
    both = pairs_of_networks()[name]
    for source, model in (both, both[::-1]):
        randomized(source)
        randomized(model, 1)
        model.load_state_dict(diagnose(model, order(source.state_dict())).repair())
        assert apart(source, model, x) < ROUNDING


def test_a_vit_is_proved_where_layers_are_called_inside_others():
    source, model = pairs_of_networks()["vit"]
    randomized(source)
    x = torch.randn(1, 3, 64, 64)
    report = diagnose(model, source.state_dict(), x, reference=source)
    assert report.proof.ok
    assert "called inside others" in report.findings[0].where
    model.load_state_dict(report.repair())
    assert apart(source, model, x) < ROUNDING


class Stages(nn.Module):
    """The MobileNetV1 x0.25 of a RetinaFace training checkpoint."""

    def __init__(self):
        super().__init__()

        def first(i, o):
            return nn.Sequential(
                nn.Conv2d(i, o, 3, 2, 1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU()
            )

        def twice(i, o):
            return nn.Sequential(
                nn.Conv2d(i, i, 3, 1, 1, groups=i, bias=False),
                nn.BatchNorm2d(i),
                nn.LeakyReLU(),
                nn.Conv2d(i, o, 1, bias=False),
                nn.BatchNorm2d(o),
                nn.LeakyReLU(),
            )

        widths = (8, 16, 32, 32, 64, 64, 128, 128, 128, 128, 128, 128, 256, 256)
        blocks = [twice(i, o) for i, o in itertools.pairwise(widths)]
        self.stage1 = nn.Sequential(first(3, 8), *blocks[:5])
        self.stage2 = nn.Sequential(*blocks[5:11])
        self.stage3 = nn.Sequential(*blocks[11:])
        self.fc = nn.Linear(256, 1000)


def test_a_training_checkpoint_saved_from_data_parallel(cases):
    file = cases / "checkpoints" / "retinaface_mobilenetV1x0.25_model_best.pth.tar"
    model = Stages()
    report = diagnose(model, file)
    assert len(report.matched) == 164
    assert "removeprefix('module.')" in report.findings[0].fix
    loaded = {"model": model, "path": file}
    exec(report.code(), loaded)  # noqa: S102 - our own script
    assert torch.equal(model.fc.bias, loaded["state"]["module.fc.bias"])


def test_the_backbone_of_a_detector(cases):
    model = Stages()
    del model.fc
    report = diagnose(model, cases / "checkpoints" / "retinaface_mobilenet0.25_Final.pth")
    assert len(report.matched) == 162
    assert all(r.source == f"body.{r.key}" for r in report.rows if r.key)
    assert len(report.unexpected) == 118  # the pyramid and the heads
    model.load_state_dict(report.repair())


def test_three_networks_of_mtcnn(cases):
    convolutions = {
        "pnet": [(3, 10, 3), (10, 16, 3), (16, 32, 3), (32, 2, 1), (32, 4, 1)],
        "rnet": [(3, 28, 3), (28, 48, 3), (48, 64, 2)],
    }
    for name, layers in convolutions.items():
        model = nn.ModuleList(nn.Conv2d(*layer) for layer in layers)
        model.extend(nn.PReLU(o) for _, o, k in layers if k > 1)
        if name == "rnet":
            model.extend([nn.Linear(576, 128), nn.PReLU(128), nn.Linear(128, 2), nn.Linear(128, 4)])
        report = diagnose(model, cases / "mtcnn" / "facenet_pytorch" / f"{name}.pt")
        assert rules(report) == {"by shape"}
        model.load_state_dict(report.repair())


# --- evidence -------------------------------------------------------------------------------------


def chain(names, order=None, width=4, layers=None):
    layers = layers or [("linear", width, width)] * len(names)
    return randomized(Spelt(layers, names, order or range(len(names))))


def refused(report):
    with pytest.raises(MigrateError) as caught:
        report.repair()
    return str(caught.value)


def test_equal_layers_with_names_that_say_nothing_are_ambiguous():
    source, model = chain(["ka", "lo", "mi"]), chain(["ra", "so", "tu"])
    x = torch.randn(2, 4)
    for inputs in ((), (x,)):
        report = diagnose(model, source.state_dict(), *inputs)
        assert report.ambiguous == list(model.state_dict())
        assert "nothing but their order" in refused(report)
    assert {r.status for r in report.rows} == {"ambiguous"}
    model.load_state_dict(report.repair(order="trust"))
    assert apart(source, model, x) == 0


def test_equal_layers_are_told_apart_by_values():
    source, model = chain(["ka", "lo", "mi"], order=[2, 0, 1]), chain(["ra", "so", "tu"])
    x = torch.randn(2, 4)
    report = diagnose(model, source.state_dict(), x, reference=source)
    assert rules(report) == {"by value"}
    assert "gets the values that 'ka' gets" in report.rows[0].reason
    model.load_state_dict(report.repair())
    assert apart(source, model, x) == 0


def test_numbers_that_run_alike_tell_equal_layers_apart():
    source, model = chain(["net.0", "net.2", "net.4"]), chain(["fc1", "fc2", "fc3"])
    report = diagnose(model, source.state_dict())
    assert rules(report) == {"by numbering"}
    model.load_state_dict(report.repair())
    assert apart(source, model, torch.randn(2, 4)) == 0


def test_numbers_against_the_order_of_the_file_are_ambiguous():
    source, model = chain(["m2", "m0", "m1"]), chain(["fc1", "fc2", "fc3"])
    assert "contradict each other" in refused(diagnose(model, source.state_dict()))


def test_numbers_in_an_alphabetical_file_need_blocks():
    source, model = chain(["m0", "m1"]), chain(["fc1", "fc2"])
    assert "alphabetically" in refused(diagnose(model, alphabetical(source.state_dict())))
    layers = [("linear", 4, 4), ("ln", 4, 4)] * 12
    source = chain([f"blocks.{i}.{n}" for i in range(12) for n in ("norm", "fc")], layers=layers)
    model = chain([f"layer.{i}.{n}" for i in range(12) for n in ("ln", "dense")], layers=layers)
    model.load_state_dict(diagnose(model, alphabetical(source.state_dict())).repair())
    assert apart(source, model, torch.randn(2, 4)) < ROUNDING


def test_blocks_that_are_numbered_backwards_do_not_count():
    widths = (5, 6, 7)
    layers = [r for w in widths for r in (("linear", 4, w), ("linear", w, 4), ("ln", 4, 4))]
    words, others = ("up", "down", "norm"), ("widen", "narrow", "scale")
    source = chain([f"dec.{2 - i // 3}.{words[i % 3]}" for i in range(9)], layers=layers)
    model = chain([f"part.{i // 3}.{others[i % 3]}" for i in range(9)], layers=layers)
    report = diagnose(model, alphabetical(source.state_dict()))
    assert "do not follow the model's order" in refused(report)
    report = diagnose(model, source.state_dict(), torch.randn(2, 4), reference=source)
    model.load_state_dict(report.repair())
    assert report.mapping["part.0.scale.weight"] == "dec.2.norm.weight"


def test_a_model_that_numbers_otherwise_than_it_registers_is_ambiguous():
    layers = [("linear", 4, 4), ("ln", 4, 4)] * 2
    names = [f"{i}.{w}" for i in range(2) for w in ("fc", "norm")]
    source = chain([f"blocks.{n}" for n in names], layers=layers)
    model = chain([f"part.{n}ly" for n in names], order=[2, 3, 0, 1], layers=layers)
    report = diagnose(model, alphabetical(source.state_dict()))
    assert "numbers its layers in another order" in refused(report)


def test_equal_numbers_tell_nothing():
    source, model = chain(["conv1", "conv_1"]), chain(["fc1", "fc2"])
    assert "ambiguous" in refused(diagnose(model, source.state_dict()))


def test_a_model_that_runs_otherwise_than_it_registers_is_ambiguous():
    source, model = chain(["net.0", "net.2"]), chain(["fc2", "fc1"], order=[1, 0])
    state, x = source.state_dict(), torch.randn(2, 4)
    report = diagnose(model, state, x)
    assert "in another order than it registers them" in refused(report)
    report = diagnose(model, state, x, reference=source)
    model.load_state_dict(report.repair())
    assert report.mapping["fc2.weight"] == "net.0.weight"
    assert apart(source, model, x) == 0


def test_a_rearranged_sequential_shares_numbers_by_accident():
    # net.2 of the file is the second layer, net.2 of the model the third.
    names = [f"net.{i}" for i in (0, 2, 4)]
    source, model = chain(names), chain([f"net.{i}" for i in (0, 1, 2)])
    report = diagnose(model, source.state_dict())
    assert report.mapping["net.2.weight"] == "net.4.weight"
    model.load_state_dict(report.repair())
    assert apart(source, model, torch.randn(2, 4)) == 0


def test_names_that_are_those_of_other_layers_are_found_by_values():
    source, model = chain(["a", "b"], order=[0, 1]), chain(["b", "a"], order=[1, 0])
    state, x = source.state_dict(), torch.randn(2, 4)
    assert diagnose(model, state).ok  # it loads, and nothing can tell
    report = diagnose(model, state, x, reference=source)
    assert report.mapping["b.weight"] == "a.weight"
    model.load_state_dict(report.repair())
    assert apart(source, model, x) == 0


def test_blocks_that_run_the_other_way_round_are_found_by_values():
    class Reversed(nn.Module):
        def __init__(self):
            super().__init__()
            self.b = nn.ModuleList(
                nn.TransformerEncoderLayer(8, 2, 16, batch_first=True) for _ in range(3)
            )

        def forward(self, x):
            for block in reversed(self.b):
                x = block(x)
            return x

    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    source = randomized(nn.TransformerEncoder(layer, 3, enable_nested_tensor=False))
    state, x = source.state_dict(), torch.randn(2, 5, 8)
    assert "layers." in diagnose(Reversed(), state).findings[0].fix  # as names have it
    model = Reversed()
    report = diagnose(model, state, x, reference=source)
    assert report.mapping["b.0.linear1.weight"] == "layers.2.linear1.weight"
    assert not any("layers." in f.fix for f in report.findings)
    model.load_state_dict(report.repair())
    assert apart(source, model, x) < ROUNDING


DEEP = [("linear", i, o) for i, o in ((4, 6), (6, 5), (5, 7), (7, 6), (6, 8), (8, 5), (5, 9))]
DEEP += [("linear", 9, 4), ("linear", 4, 4), ("bn", 4, 4), ("linear", 4, 4), ("bare", 4, 4)]
DEEP += [("linear", 4, 3), ("bn", 3, 3), ("linear", 3, 7), ("linear", 7, 5), ("linear", 5, 4)]


def test_the_order_of_a_run_places_what_names_do_not():
    names = [f"{a}{b}" for a in "bcdfghk" for b in "aeiou"]
    source, model = (
        chain(names[: len(DEEP)], layers=DEEP),
        chain([f"{n}r" for n in names[: len(DEEP)]], layers=DEEP),
    )
    x = torch.randn(3, 4)
    report = diagnose(model, source.state_dict())
    assert "no inputs were given" in refused(report)
    report = diagnose(model, source.state_dict(), x)
    assert rules(report) == {"by shape", "by order"}
    assert "by order alone" in repr(report)
    warning = next(f for f in report.findings if f.level == "warning")
    assert "nothing but the order of the file" in warning.what
    model.load_state_dict(report.repair())
    assert apart(source, model, x) == 0


def test_an_order_that_the_run_contradicts_is_none():
    names = [f"{a}{b}" for a in "bcdfghk" for b in "aeiou"][: len(DEEP)]
    order = [*range(8), 10, 9, 8, *range(11, len(DEEP))]  # two equal layers change places
    source, model = chain(names, layers=DEEP), chain([f"{n}r" for n in names], order, layers=DEEP)
    report = diagnose(model, source.state_dict(), torch.randn(3, 4))
    assert "in another order than it registers them" in refused(report)


def test_layers_side_by_side_have_no_order():
    layers = [*DEEP[:9], ("linear", 4, 4), ("linear", 4, 4), *DEEP[9:]]
    names = [f"{a}{b}" for a in "bcdfghk" for b in "aeiou"][: len(layers)]
    x = torch.randn(3, 4)
    order = [*range(9), 10, 9, *range(11, len(layers))]
    source = randomized(Spelt(layers, names, order, gates=(9,)))
    others = [f"{n}r" for n in names]
    model = randomized(Spelt(layers, others, range(len(layers)), gates=(9,)), 1)
    report = diagnose(model, source.state_dict(), x)
    assert set(report.ambiguous) >= {f"{others[i]}.weight" for i in (9, 10)}
    assert "may register its parts in any order" in refused(report)
    report = diagnose(model, source.state_dict(), x, reference=source)
    assert any("of 2 orders" in r.reason for r in report.rows)
    model.load_state_dict(report.repair())
    assert apart(source, model, x) == 0


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_query_key_and_value_by_other_names_are_tried_in_every_order(order):
    class Other(Separate):
        def __init__(self):
            nn.Module.__init__(self)
            for i in order:
                self.add_module(("one", "two", "three")[i], nn.Linear(8, 8))
            self.last = nn.Linear(8, 8)

        def forward(self, x):
            q, k, v = self.one(x), self.two(x), self.three(x)
            return self.last(nn.functional.scaled_dot_product_attention(q, k, v))

    source, model, x = randomized(Separate()), Other(), torch.randn(2, 5, 8)
    assert "ambiguous" in refused(diagnose(model, source.state_dict(), x))
    report = diagnose(model, source.state_dict(), x, reference=source)
    assert report.mapping["two.weight"] == "k_proj.weight"
    model.load_state_dict(report.repair())
    assert apart(source, model, x) == 0


def test_layers_that_may_change_places_are_no_problem():
    class Sum(nn.Module):
        def __init__(self, a, b):
            super().__init__()
            self.names = a, b
            self.add_module(a, nn.Linear(4, 4))
            self.add_module(b, nn.Linear(4, 4))

        def forward(self, x):
            return sum(self.get_submodule(n)(x) for n in self.names)

    source, model, x = randomized(Sum("ab", "cd")), Sum("ef", "gh"), torch.randn(2, 4)
    report = diagnose(model, source.state_dict(), x, reference=source)
    model.load_state_dict(report.repair())
    assert apart(source, model, x) < 1e-6


def test_one_layer_more_on_one_side_is_not_guessed():
    three, four = chain(["ka", "lo", "mi"]), chain(["ra", "so", "tu", "wi"])
    text = refused(diagnose(four, three.state_dict()))
    assert "the model has 4 layers of this shape, the checkpoint 3" in text
    assert "ambiguous" in refused(diagnose(three, four.state_dict()))


@pytest.mark.parametrize("order", [dict, alphabetical])
def test_as_many_of_one_name_is_no_evidence_against_the_order(order):
    # By their numbers of members alone, the first of the file would be the second of the model.
    layers = [("linear", 4, 4)] * 3
    source = chain(["blk.3.v", "blk.4.k", "blk.11.v"], layers=layers)
    model = chain(["part.2.h", "part.2.m", "part.7.m"], layers=layers)
    report = diagnose(model, order(source.state_dict()))
    assert report.ambiguous == list(model.state_dict())


def test_the_caller_may_say_it():
    source, model = chain(["ka", "lo"]), chain(["ra", "so"])
    state = source.state_dict()
    pairs = {"so.weight": "ka.weight", "so.bias": "ka.bias"}
    model.load_state_dict(diagnose(model, state, pairs=pairs).repair())
    assert torch.equal(model.so.weight, state["ka.weight"])
    assert torch.equal(model.ra.weight, state["lo.weight"])
    for wrong in ({"so.wieght": "ka.weight"}, {"so.weight": "kb.weight"}, {"so.weight": "ka.bias"}):
        with pytest.raises(MigrateError, match=r"wieght|kb|is \(4,\)"):
            diagnose(model, state, pairs=wrong)


# --- the original network -------------------------------------------------------------------------


def test_settings_that_differ_are_found_and_the_repair_refused():
    x = torch.randn(4, 4)
    source, model = (nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3)) for _ in "ab")
    randomized(source)
    model[0].eps = 0.5
    report = diagnose(model, source.state_dict(), x, reference=source)
    assert not report.ok
    assert "something else than the original from '0' on" in report.findings[0].what
    assert report.proof.first_divergence.layer == "0"
    with pytest.raises(MigrateError, match="something else"):
        report.repair()
    model.load_state_dict(report.repair(proof="ignore"))


def test_the_reference_takes_the_checkpoints_weights():
    x = torch.randn(2, 4)
    source, model = chain(["ka", "lo"], order=[1, 0]), chain(["ra", "so"])
    untrained = randomized(copy.deepcopy(source), 5)
    before = untrained.ka.weight.clone()
    saved = {f"module.{k}": v for k, v in source.state_dict().items()}
    model.load_state_dict(diagnose(model, saved, x, reference=untrained).repair())
    assert apart(source, model, x) == 0
    assert torch.equal(untrained.ka.weight, before)


def test_a_reference_that_cannot_be_used():
    source, model, x = chain(["ka"]), chain(["ra"]), torch.randn(2, 4)
    state = source.state_dict()
    with pytest.raises(MigrateError, match="does not fit the reference"):
        diagnose(model, state, x, reference=nn.Linear(9, 9))
    with pytest.raises(MigrateError, match="not a network"):
        diagnose(model, state, x, reference=state)
    with pytest.raises(MigrateError, match="cannot run on these inputs"):
        diagnose(model, state, torch.randn(2, 7), reference=source)
    assert any(
        "without inputs" in f.what for f in diagnose(model, state, reference=source).findings
    )


def test_inputs_that_do_not_fit_are_one_error():
    source, model = chain(["net.0", "net.2"]), chain(["fc1", "fc2"])
    with pytest.raises(MigrateError, match="cannot run on these inputs"):
        diagnose(model, source.state_dict(), torch.randn(2, 7))


def test_a_model_on_the_meta_device_is_run_and_proved():
    source, x = chain(["net.0", "net.2"]), torch.randn(2, 4)
    with torch.device("meta"):
        model = Spelt([("linear", 4, 4)] * 2, ["fc1", "fc2"], range(2))
    assert diagnose(model, unreadable(source.state_dict()), x).repair()
    report = diagnose(model, source.state_dict(), x, reference=source)
    assert report.proof.ok
    model.load_state_dict(report.repair(), assign=True)
    assert apart(source, model, x) == 0


def test_a_network_that_looks_at_its_values_is_run_as_it_is():
    class Looks(Spelt):
        def forward(self, x):
            return super().forward(x) if float(x.sum()) > -1e9 else x

    source = chain(["net.0", "net.2"])
    model = Looks([("linear", 4, 4)] * 2, ["fc2", "fc1"], [1, 0]).train()
    assert "registers" in refused(diagnose(model, source.state_dict(), torch.randn(2, 4)))
    assert model.training


# --- never silently wrong -------------------------------------------------------------------------


@st.composite
def experiments(draw):
    """Draw a network twice, by two sets of names, and its file in some order."""
    count = draw(st.sampled_from([2, 3, 4, 6, 9, 14]))
    widths = draw(st.sampled_from([[4], [4, 6], [3, 4, 5, 6, 7]]))
    kinds = draw(
        st.lists(
            st.sampled_from(["linear", "linear", "bare", "bn", "ln"]),
            min_size=count,
            max_size=count,
        )
    )
    at = first = draw(st.sampled_from(widths))
    layers, gates = [], []
    for i, kind in enumerate(kinds):
        if layers and i - 1 in gates:
            layers.append(layers[-1])
            continue
        to = at if kind in ("bn", "ln") else draw(st.sampled_from(widths))
        layers.append((kind, at, to))
        side_by_side = kind in ("linear", "bare") and at == to and i + 1 < count
        if side_by_side and draw(st.booleans()):
            gates.append(i)
        at = to
    pick = random.Random(draw(st.integers(0, 10**6)))  # noqa: S311 - names for a test
    styles = [_names(pick, count, style) for style in draw(st.permutations(STYLES))[:2]]
    orders = [
        draw(st.sampled_from([list(range(count)), pick.sample(range(count), count)])) for _ in "ab"
    ]
    source, model = (
        randomized(Spelt(layers, names, order, gates), seed)
        for names, order, seed in zip(styles, orders, (1, 2), strict=True)
    )
    state = draw(st.sampled_from([dict, alphabetical, _flat, _shuffled(pick)]))(source.state_dict())
    return source, model, state, torch.randn(5, first)


STYLES = ("sequential", "words", "nested words", "blocks", "numbers")


def _names(pick, count, style):
    words = [
        "".join(w) + "x"
        for w in pick.sample([a + b + c for a in "bdfk" for b in "aeiou" for c in "lmnr"], count)
    ]
    return {
        "sequential": [f"net.{2 * i}" for i in range(count)],
        "words": words,
        "nested words": [f"{w}.{w[::-1]}" for w in words],
        "blocks": [f"layer.{i // 2}.{words[i % 2]}" for i in range(count)],
        "numbers": [f"fc{i}" for i in range(count)],
    }[style]


def _flat(state):
    return {f"p{i}": v for i, v in enumerate(state.values())}


def _shuffled(pick):
    def shuffled(state):
        layers = {}
        for key, value in state.items():
            layers.setdefault(key.rpartition(".")[0], {})[key] = value
        names = pick.sample(list(layers), len(layers))
        return {k: v for name in names for k, v in layers[name].items()}

    return shuffled


QUIET = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def by_accident(model, state):
    """Whether the file's names are the model's own, which nobody can doubt without values."""
    return bool(
        {k.rpartition(".")[0] for k in state} & {k.rpartition(".")[0] for k in model.state_dict()}
    )


@QUIET
@given(experiments(), st.booleans())
def test_a_repair_is_right_or_refused(experiment, with_inputs):
    source, model, state, x = experiment
    if by_accident(model, state):
        return
    report = diagnose(model, state, *((x,) if with_inputs else ()))
    try:
        repaired = report.repair()
    except MigrateError:
        assert report.ambiguous or report.missing
        return
    model.load_state_dict(repaired)
    assert apart(source, model, x) < ROUNDING


@QUIET
@given(experiments())
def test_with_the_original_it_is_nearly_always_right(experiment):
    source, model, state, x = experiment
    if any(k.startswith("p") and k[1:].isdigit() for k in state):
        return  # the names of no network
    report = diagnose(model, state, x, reference=source)
    try:
        repaired = report.repair()
    except MigrateError:
        assert report.ambiguous
        return
    model.load_state_dict(repaired)
    assert apart(source, model, x) < ROUNDING
    assert report.proof.ok
