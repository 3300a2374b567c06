"""Each rule that turns a checkpoint's tensors into a model's, on networks whose outputs tell."""

import json
import warnings

import pytest
import torch
from torch import nn
from torch.nn import utils
from torch.nn.utils import parametrizations

from migrate_kit.checkpoints.diagnose import diagnose
from migrate_kit.checkpoints.state import StateDict
from migrate_kit.errors import MigrateError
from tests.checkpoints.diagnosed import (
    GPT,
    Conv1D,
    Fused,
    Multihead,
    Separate,
    apart,
    randomized,
    small,
)

STATE = randomized(small()).state_dict()


def repaired(model, checkpoint, **allowed):
    """Load the repair strictly and return the report."""
    report = diagnose(model, checkpoint)
    model.load_state_dict(report.repair(**allowed))
    return report


def rules(report):
    return {rule for row in report.rows for rule in row.rule.split("; ")}


# --- wrappers -------------------------------------------------------------------------------------

SAVED_FROM = {
    "DataParallel": lambda m: nn.DataParallel(m).state_dict(),
    "torch.compile": lambda m: torch.compile(m).state_dict(),
    "compiled DataParallel": lambda m: torch.compile(nn.DataParallel(m)).state_dict(),
    "AveragedModel": lambda m: torch.optim.swa_utils.AveragedModel(m).state_dict(),
    "a training class": lambda m: nn.ModuleDict({"model": m}).state_dict(),
    "two around it": lambda m: nn.ModuleDict({"module": nn.ModuleDict({"net": m})}).state_dict(),
    "any parent": lambda m: nn.ModuleDict({"trunk": nn.ModuleDict({"a": m})}).state_dict(),
    "parts wrapped": lambda m: nn.Sequential(m[0], nn.DataParallel(m[1]), *m[2:]).state_dict(),
    "compiled parts": lambda m: nn.Sequential(torch.compile(m[0]), *m[1:]).state_dict(),
}


@pytest.mark.parametrize("wrapper", SAVED_FROM)
def test_saved_from_a_wrapper(wrapper):
    source = randomized(small())
    model = small()
    repaired(model, SAVED_FROM[wrapper](source))
    assert apart(source, model, torch.ones(1, 3, 4, 4)) == 0


@pytest.mark.parametrize(
    ("wrap", "line"),
    [
        (nn.DataParallel, "model.module.load_state_dict(state)"),
        (torch.compile, "model._orig_mod.load_state_dict(state)"),
    ],
)
def test_the_model_itself_is_wrapped(wrap, line):
    model = wrap(small())
    report = repaired(model, STATE)
    assert report.findings[0].fix == line
    assert torch.equal(next(iter(model.parameters())), STATE["0.weight"])


def test_a_child_that_is_really_called_module_keeps_its_name():
    model = nn.ModuleDict({"module": nn.Linear(2, 2), "head": nn.Linear(2, 3)})
    assert diagnose(model, model.state_dict()).ok
    report = repaired(model, nn.DataParallel(model).state_dict())
    assert report.mapping["module.weight"] == "module.module.weight"


def test_of_two_sets_in_one_file_the_second_is_left_out_and_said():
    average = randomized(small(), 1).state_dict()
    state = {f"ema.{k}": v for k, v in average.items()} | {
        f"model.{k}": v for k, v in STATE.items()
    }
    model = small()
    report = repaired(model, state)
    assert torch.equal(model[4].weight, STATE["4.weight"])
    assert report.left_out == [f"ema.{k}" for k in STATE]
    (finding,) = [f for f in report.findings if "second set" in f.what]
    line = finding.fix.removeprefix("to take that one: ")
    chosen = eval(line, {"diagnose": diagnose, "model": model, "state": state})  # noqa: S307 - ours
    assert torch.equal(chosen.repair()["4.weight"], average["4.weight"])


def test_parents_that_fit_equally_well_are_not_guessed():
    def parts(*names):
        return nn.ModuleDict({n: nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 3)) for n in names})

    report = diagnose(parts("up", "down"), parts("left", "right").state_dict())
    assert report.ambiguous == list(parts("up", "down").state_dict())
    with pytest.raises(MigrateError, match="ambiguous"):
        report.repair()


# --- other frameworks' names and axes -------------------------------------------------------------


def convolutional():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.Conv2d(8, 16, 3, groups=8),
        nn.Conv2d(16, 16, 1),
        nn.Flatten(),
        nn.Linear(256, 20),
        nn.ReLU(),
        nn.Linear(20, 20),
    )


def as_tensorflow(s):
    depthwise = s["2.weight"].reshape(8, 2, 3, 3).permute(2, 3, 0, 1)
    return {
        "conv/kernel:0": s["0.weight"].permute(2, 3, 1, 0),
        "conv/bias:0": s["0.bias"],
        "bn/gamma:0": s["1.weight"],
        "bn/beta:0": s["1.bias"],
        "bn/moving_mean:0": s["1.running_mean"],
        "bn/moving_variance:0": s["1.running_var"],
        "separate/depthwise_kernel:0": depthwise,
        "separate/bias:0": s["2.bias"],
        "point/kernel:0": s["3.weight"].permute(2, 3, 1, 0),
        "point/bias:0": s["3.bias"],
        "dense/kernel:0": s["5.weight"].t(),
        "dense/bias:0": s["5.bias"],
        "logits/kernel:0": s["7.weight"].t(),
        "logits/bias:0": s["7.bias"],
    }


def test_a_file_of_tensorflow():
    # The two layers with 16 outputs differ in their inputs, the last weight is square.
    source, model = randomized(convolutional()), convolutional()
    report = repaired(model, as_tensorflow(source.state_dict()))
    assert apart(source, model, torch.randn(2, 3, 8, 8)) == 0
    axes = {"axes (h, w, in, out) turned", "axes (h, w, in, times) turned", "axes (in, out) turned"}
    assert axes < rules(report)
    assert report.kept == ["1.num_batches_tracked"]


def test_a_file_of_mindspore():
    source, model = randomized(convolutional()), convolutional()
    names = {"weight": "gamma", "bias": "beta", "running_mean": "moving_mean"}
    names["running_var"] = "moving_variance"
    state = {
        f"1.{names[k[2:]]}" if k.startswith("1.") else k: v
        for k, v in source.state_dict().items()
        if "num_batches" not in k
    }
    repaired(model, state)
    assert apart(source, model, torch.randn(2, 3, 8, 8)) == 0


def test_gamma_of_an_old_bert_and_of_a_layer_scale():
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.gamma = nn.Parameter(torch.ones(4))
            self.norm = nn.LayerNorm(4)

    scale = nn.ModuleDict({"layer": Scale()})
    state = {"bert.layer.gamma": torch.full((4,), 2.0)}
    state |= {"bert.layer.norm.gamma": torch.zeros(4), "bert.layer.norm.beta": torch.ones(4)}
    repaired(scale, state)
    assert scale["layer"].gamma.tolist() == [2] * 4
    assert scale["layer"].norm.weight.tolist() == [0] * 4


@pytest.mark.parametrize(("one", "other"), [(Conv1D, nn.Linear), (nn.Linear, Conv1D)])
def test_linear_layers_the_other_way_round_square_ones_too(one, other):
    source, model, tokens = randomized(GPT(one)), GPT(other), torch.randint(50, (2, 7))
    report = repaired(model, source.state_dict())
    assert apart(source, model, tokens) < 1e-5
    square = next(r for r in report.rows if r.key == "transformer.h.0.attn.c_proj.weight")
    assert square.status == "made"
    assert "its shape does not tell, 6 others do" in square.reason
    kept = next(r for r in report.rows if r.key == "transformer.wte.weight")
    assert kept.status == "same name"


def test_linear_layers_the_other_way_round_under_other_names():
    source, model, tokens = randomized(GPT(Conv1D)), GPT(), torch.randint(50, (2, 7))
    words = {"c_attn": "qkv", "c_fc": "up", "transformer": "decoder", "ln_": "norm", ".h.": ".l."}
    state = source.state_dict()
    for old, new in words.items():
        state = {k.replace(old, new): v for k, v in state.items()}
    repaired(model, state)
    assert apart(source, model, tokens) < 1e-5


def test_one_name_in_common_by_accident_turns_nothing():
    source = nn.ModuleDict({"a": nn.Linear(7, 4), "b": nn.Linear(4, 6), "c": nn.Linear(6, 4)})
    model = nn.ModuleDict({"x": nn.Linear(7, 4), "c": nn.Linear(4, 6), "y": nn.Linear(6, 4)})
    report = repaired(model, source.state_dict())
    assert report.mapping["c.weight"] == "b.weight"


def test_square_layers_alone_are_not_turned():
    source = randomized(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)))
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    repaired(model, source.state_dict())
    assert apart(source, model, torch.randn(2, 4)) == 0


def test_a_convolution_and_a_linear_layer_with_one_weight():
    linear = randomized(nn.Sequential(nn.Flatten(), nn.Linear(48, 6), nn.ReLU(), nn.Linear(6, 5)))
    convolution = nn.Sequential(nn.Conv2d(3, 6, 4), nn.ReLU(), nn.Conv2d(6, 5, 1), nn.Flatten())
    x = torch.randn(2, 3, 4, 4)
    repaired(convolution, linear.state_dict())
    assert apart(linear, convolution, x) < 1e-5
    randomized(convolution, 1)
    repaired(linear, convolution.state_dict())
    assert apart(linear, convolution, x) < 1e-5


def test_a_weight_that_only_looks_turned_is_not():
    # One layer of (in, out) among others that fit is another layer's weight.
    model = nn.ModuleDict({"a": nn.Linear(3, 5), "b": nn.Linear(5, 7), "c": nn.Linear(7, 9)})
    state = dict(model.state_dict()) | {"c.weight": torch.zeros(7, 9)}
    report = diagnose(model, state)
    assert report.mismatched == ["c.weight"]
    assert "the same numbers in another order" in report.rows[4].reason


# --- one weight in several forms ------------------------------------------------------------------


def one_dimensional(norm=lambda layer: layer):
    return nn.Sequential(
        norm(nn.Conv1d(3, 8, 3)),
        nn.ReLU(),
        norm(nn.ConvTranspose1d(8, 5, 3)),
        nn.Flatten(),
        norm(nn.Linear(50, 4)),
    )


def older(norm):
    def build(layer):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            return norm(layer)

    return build


WEIGHT_NORM = {
    "plain": lambda layer: layer,
    "old": older(utils.weight_norm),
    "new": parametrizations.weight_norm,
}


@pytest.mark.parametrize("model", WEIGHT_NORM)
@pytest.mark.parametrize("source", WEIGHT_NORM)
def test_weight_norm_in_every_form(source, model):
    x = torch.randn(2, 3, 10)
    saved, network = (one_dimensional(WEIGHT_NORM[n]) for n in (source, model))
    randomized(saved)
    saved(x)
    repaired(network, saved.state_dict())
    assert apart(saved, network, x) < 2e-6


@pytest.mark.parametrize("model", ["plain", "old", "new"])
@pytest.mark.parametrize("source", ["old", "new"])
def test_spectral_norm_in_every_form(source, model):
    norms = {
        "plain": lambda layer: layer,
        "old": older(utils.spectral_norm),
        "new": parametrizations.spectral_norm,
    }
    x = torch.randn(2, 3, 10)
    saved, network = (one_dimensional(norms[n]) for n in (source, model))
    for _ in range(3):
        saved.train()(x)
    saved.eval()(x)
    repaired(network, saved.state_dict())
    assert apart(saved, network, x) < 2e-6


def test_a_plain_weight_has_no_spectral_norm():
    report = diagnose(
        one_dimensional(parametrizations.spectral_norm), one_dimensional().state_dict()
    )
    assert "the checkpoint's has not" in next(
        r.reason for r in report.rows if r.status == "missing"
    )


ATTENTIONS = (Separate, Fused, Multihead)


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("target", ATTENTIONS)
@pytest.mark.parametrize("source", ATTENTIONS)
def test_query_key_and_value_together_and_apart(source, target, layers):
    x = torch.randn(2, 5, 8)
    saved, model = (nn.Sequential(*(kind() for _ in range(layers))) for kind in (source, target))
    randomized(saved)
    report = repaired(model, saved.state_dict())
    assert apart(saved, model, x) < 1e-5
    # Only PyTorch's own layer says how the three lie; elsewhere it is an assumption, and said.
    assumed = {source, target} == {Separate, Fused}
    assert assumed == any(f.level == "warning" and "assumed" in f.what for f in report.findings)


# --- LoRA -----------------------------------------------------------------------------------------


def adapted():
    base = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 4))
    state = {}
    for i, (inputs, outputs) in enumerate(((6, 5), (5, 4))):
        path = f"base_model.model.{i}"
        state[f"{path}.base_layer.weight"] = base[i].weight.detach()
        state[f"{path}.base_layer.bias"] = base[i].bias.detach()
        state[f"{path}.lora_A.default.weight"] = torch.randn(2, inputs)
        state[f"{path}.lora_B.default.weight"] = torch.randn(outputs, 2)
    return base, state


def test_a_lora_is_merged_with_its_alpha():
    base, state = adapted()
    model = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 4))
    report = diagnose(model, state, lora_alpha=6)
    model.load_state_dict(report.repair())
    down, up = (state[f"base_model.model.0.lora_{x}.default.weight"] for x in "AB")
    assert torch.allclose(model[0].weight, base[0].weight + 3 * up @ down, atol=1e-5)
    assert "LoRA merged (alpha = 6)" in report.rows[0].rule


def test_alpha_is_read_from_beside_the_file(tmp_path):
    base, state = adapted()
    torch.save(state, tmp_path / "net.pth")
    config = {"lora_alpha": 4, "use_rslora": True}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    model = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 4))
    model.load_state_dict(diagnose(model, tmp_path / "net.pth").repair())
    down, up = (state[f"base_model.model.0.lora_{x}.default.weight"] for x in "AB")
    assert torch.allclose(model[0].weight, base[0].weight + 4 / 2**0.5 * up @ down)


def test_alpha_may_be_in_the_file():
    base, _ = adapted()
    down, up = torch.randn(2, 6), torch.randn(5, 2)
    state = dict(base.state_dict()) | {"0.lora_down.weight": down, "0.lora_up.weight": up}
    model = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 4))
    repaired(model, state | {"0.alpha": torch.tensor(1.0)})
    assert torch.allclose(model[0].weight, base[0].weight + 0.5 * up @ down)


def test_without_alpha_the_lora_is_not_dropped_silently():
    _, state = adapted()
    model = nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 4))
    report = diagnose(model, state)
    assert not report.ok
    assert any("lora_alpha=" in f.fix for f in report.findings)
    with pytest.raises(MigrateError, match="4 tensors of a LoRA"):
        report.repair()


def test_an_adapter_alone_needs_its_base():
    _, state = adapted()
    state = {k: v for k, v in state.items() if "lora" in k}
    report = diagnose(nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 4)), state)
    assert any("without the weights that it is added to" in f.what for f in report.findings)


# --- quantized ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"4.weight": torch.zeros(10, 32, dtype=torch.int8), "4.SCB": torch.ones(10)}, "8-bit"),
        (
            {"4.weight": torch.zeros(160, 1, dtype=torch.uint8), "4.weight.absmax": torch.ones(5)},
            "4-bit",
        ),
        (
            {"4.qweight": torch.zeros(4, 10), "4.qzeros": torch.ones(1), "4.scales": torch.ones(1)},
            "GPTQ",
        ),
        (
            {
                "4._packed_params._packed_params": torch.zeros(1),
                "4.scale": torch.ones(1),
                "4.zero_point": torch.zeros(1),
            },
            "PyTorch",
        ),
    ],
)
def test_quantized_weights_are_called_that_and_not_loaded(changes, word):
    state = {k: v for k, v in STATE.items() if k != "4.weight"} | changes
    report = diagnose(small(), state)
    finding = next(f for f in report.findings if "quantized" in f.what)
    assert finding.level == "error"
    assert word in finding.what
    assert finding.fix
    with pytest.raises(MigrateError):
        report.repair()


def test_integers_that_would_load_as_floats_are_refused():
    model = nn.Linear(3, 2)
    state = {"weight": torch.ones(2, 3, dtype=torch.int8), "bias": torch.ones(2)}
    model.load_state_dict(state)  # PyTorch converts them without a word
    report = diagnose(model, state)
    assert not report.ok
    with pytest.raises(MigrateError):
        report.repair()


def test_a_real_quantized_dtype():
    with pytest.warns(UserWarning, match="quantized tensor creation"):
        weight = torch.quantize_per_tensor(torch.ones(2, 3), 0.1, 0, torch.qint8)
    report = diagnose(nn.Linear(3, 2), {"weight": weight, "bias": torch.ones(2)})
    assert not report.ok
    assert any("PyTorch quantized" in f.what for f in report.findings)


def test_a_layer_quantized_for_mlu_keeps_its_float_weight():
    extra = {"4.use_symmetry": torch.ones(1), "4.scale": torch.ones(2)}
    extra["4.quantized_mode"] = torch.ones(1)
    model = small()
    report = repaired(model, dict(STATE) | extra)
    assert report.left_out == list(extra)
    assert torch.equal(model[4].weight, STATE["4.weight"])


# --- buffers, ties, heads, positions --------------------------------------------------------------


def test_old_files_have_no_counter():
    state = {k: v for k, v in STATE.items() if "num_batches" not in k}
    model = small()
    model[1].num_batches_tracked.fill_(5)
    report = repaired(model, state)
    assert report.ok  # PyTorch fills it in for a file without versions
    assert report.kept == ["1.num_batches_tracked"]
    assert int(model[1].num_batches_tracked) == 5
    with_versions = StateDict(StateDict.of(state).entries, small().state_dict()._metadata)
    report = diagnose(model, with_versions)
    assert not report.ok  # and not for one with
    model.load_state_dict(report.repair())


def test_statistics_that_are_missing_are_an_error():
    state = {k: v for k, v in STATE.items() if "running" not in k}
    report = diagnose(small(), state)
    assert report.missing == ["1.running_mean", "1.running_var"]
    assert any("wrong in eval mode" in f.what for f in report.findings)
    with pytest.raises(MigrateError, match="running_mean"):
        report.repair()


def test_statistics_that_the_model_does_not_keep():
    report = diagnose(nn.BatchNorm1d(3, track_running_stats=False), nn.BatchNorm1d(3).state_dict())
    rows = {r.source: r.reason for r in report.rows}
    assert "track_running_stats=False" in rows["running_mean"]


def test_a_buffer_that_was_never_saved_and_one_that_no_longer_is():
    class Positions(nn.Module):
        def __init__(self, persistent):
            super().__init__()
            self.register_buffer("position_ids", torch.arange(4), persistent=persistent)
            self.fc = nn.Linear(2, 2)

    saves, does_not = Positions(True), Positions(False)
    report = repaired(saves, does_not.state_dict())
    assert report.kept == ["position_ids"]
    assert saves.position_ids.tolist() == [0, 1, 2, 3]
    report = repaired(does_not, saves.state_dict())
    assert report.left_out == ["position_ids"]
    assert "persistent=False" in report.rows[-1].reason


def test_a_buffer_of_another_size_that_follows_from_the_settings():
    class Window(nn.Module):
        def __init__(self, size):
            super().__init__()
            self.register_buffer("relative_position_index", torch.arange(size**2))
            self.fc = nn.Linear(2, 2)

    model = Window(3)
    report = repaired(model, Window(2).state_dict())
    assert report.kept == ["relative_position_index"]
    assert len(model.relative_position_index) == 9


def test_tied_weights_of_which_one_is_saved():
    source, tokens = randomized(GPT()), torch.randint(50, (2, 7))
    for dropped in ("lm_head.weight", "transformer.wte.weight"):
        model = GPT()
        state = {k: v for k, v in source.state_dict().items() if k != dropped}
        report = repaired(model, state)
        assert apart(source, model, tokens) == 0
        row = next(r for r in report.rows if r.key == dropped)
        assert (row.status, row.rule) == ("made", "tied weights")
        assert model.lm_head.weight is model.transformer["wte"].weight


def test_tied_weights_on_the_meta_device():
    with torch.device("meta"):
        model = GPT()
    state = {k: v for k, v in GPT().state_dict().items() if k != "lm_head.weight"}
    assert "lm_head.weight" in diagnose(model, state).repair()


def test_a_head_that_the_model_did_not_tie():
    state = {k: v for k, v in GPT().state_dict().items() if k != "lm_head.weight"}
    model = GPT(tied=False)
    report = diagnose(model, state)
    assert report.missing == ["lm_head.weight"]
    pairs = {"lm_head.weight": "transformer.wte.weight"}
    assert f"pairs={pairs}" in next(r.reason for r in report.rows if r.status == "missing")
    model.load_state_dict(diagnose(model, state, pairs=pairs).repair())
    assert torch.equal(model.lm_head.weight, model.transformer["wte"].weight)


def test_one_tensor_here_and_two_in_the_file():
    report = diagnose(GPT(), randomized(GPT(tied=False)).state_dict())
    assert any(
        "one tensor in the model and two in the checkpoint" in f.what for f in report.findings
    )
    assert not diagnose(GPT(), GPT().state_dict()).findings


@pytest.mark.parametrize("name", ["4", "classifier"])
def test_a_head_of_another_class_count(name):
    other = {k.replace("4.", f"{name}."): v for k, v in small(7).state_dict().items()}
    model = small()
    before = model[4].weight.clone()
    report = diagnose(model, other)
    assert report.mismatched == ["4.weight", "4.bias"]
    assert "7 classes or outputs here, the model 10" in report.rows[-2].reason
    with pytest.raises(MigrateError, match="another number of classes") as caught:
        report.repair()
    assert 'repair(head="keep")' in caught.value.fix
    model.load_state_dict(report.repair(head="keep"))
    assert torch.equal(model[4].weight, before)
    assert torch.equal(model[0].weight, other["0.weight"])


def test_another_number_of_input_channels_is_no_head():
    model = small()
    model[0] = nn.Conv2d(1, 8, 3)
    report = diagnose(model, STATE)
    assert "input channels" in report.rows[0].reason
    with pytest.raises(MigrateError, match="shapes differ"):
        report.repair(head="keep")


def vit(size, **more):
    from timm.models.vision_transformer import VisionTransformer

    return VisionTransformer(
        img_size=size, patch_size=16, depth=1, num_heads=2, embed_dim=32, num_classes=4, **more
    )


@pytest.mark.parametrize("tokens", [0, 1])
def test_position_embeddings_are_resized_as_timm_does_if_allowed(tokens):
    from timm.layers import resample_abs_pos_embed

    more = {} if tokens else {"class_token": False, "global_pool": "avg"}
    source, model = randomized(vit(64, **more)), vit(128, **more)
    report = diagnose(model, source.state_dict())
    assert report.mismatched == ["pos_embed"]
    with pytest.raises(MigrateError, match="position embeddings"):
        report.repair()
    model.load_state_dict(report.repair(positions="resize"))
    wanted = resample_abs_pos_embed(source.pos_embed, (8, 8), num_prefix_tokens=tokens)
    assert torch.equal(model.pos_embed, wanted)
    assert "grid of 4 by 4 resized to 8 by 8" in next(r.reason for r in report.rows if r.reason)


def test_positions_of_a_text_are_no_grid():
    report = diagnose(GPT(positions=16), GPT(positions=9).state_dict())
    assert report.mismatched == ["transformer.wpe.weight"]
    with pytest.raises(MigrateError, match="shapes differ"):
        report.repair(positions="resize")


def test_what_a_layer_saves_beside_its_tensors():
    class Counts(nn.Linear):
        seen = 3

        def get_extra_state(self):
            return {"seen": self.seen}

        def set_extra_state(self, state):
            self.seen = state["seen"]

    model = Counts(2, 2)
    report = repaired(model, nn.Linear(2, 2).state_dict())
    assert report.kept == ["_extra_state"]
    assert model.seen == 3
