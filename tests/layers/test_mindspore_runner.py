"""MindSpore's cells, recorded and judged against the same network in torch."""

import os
import sys
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import migrate_kit as mk
from migrate_kit.layers.runners import mindspore_import, mindspore_state
from migrate_kit.layers.runners.mindspore_values import DTYPES, Mirror, to_mindspore, to_torch
from migrate_kit.layers.structure import family

pytest.importorskip("mindspore", reason="MindSpore is not installed: pip install '.[workbook]'")
ms = mindspore_import.load()
mnn = ms.nn
RENAMED = {"gamma": "weight", "beta": "bias", "moving_mean": "running_mean"}
RENAMED |= {"moving_variance": "running_var", "embedding_table": "weight"}


class Block(nn.Module):
    def __init__(self, inside, out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.down = nn.Conv2d(inside, out, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + self.down(x))


class Net(nn.Module):
    """The stages of resnet18, then LayerNorm and GELU, at a width that takes no time."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.relu = nn.ReLU()
        widths = ((8, 8, 1), (8, 8, 1), (8, 16, 2), (16, 16, 1))
        widths += ((16, 24, 2), (24, 24, 1), (24, 32, 2), (32, 32, 1))
        self.layers = nn.Sequential(*(Block(*w) for w in widths))
        self.norm = nn.LayerNorm(32)
        self.act = nn.GELU()
        self.head = nn.Linear(32, 5)

    def forward(self, x):
        x = self.layers(self.relu(self.bn1(self.conv1(x)))).mean((2, 3))
        return self.head(self.act(self.norm(x)))


class MsBlock(mnn.Cell):
    def __init__(self, inside, out, stride, eps=1e-5):
        super().__init__()
        conv = partial(mnn.Conv2d, has_bias=False, pad_mode="pad")
        self.conv1 = conv(inside, out, 3, stride, padding=1)
        self.bn1 = mnn.BatchNorm2d(out)
        self.relu = mnn.ReLU()
        self.conv2 = conv(out, out, 3, 1, padding=1)
        self.bn2 = mnn.BatchNorm2d(out, eps=eps)
        self.down = conv(inside, out, 1, stride, padding=0) if stride > 1 else mnn.Identity()

    def construct(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + self.down(x))


class MsNet(mnn.Cell):
    def __init__(self, pad_mode="pad", epsilon=1e-5, approximate=False):
        super().__init__()
        padding = 3 if pad_mode == "pad" else 0
        self.conv1 = mnn.Conv2d(3, 8, 7, 2, pad_mode=pad_mode, padding=padding, has_bias=False)
        self.bn1 = mnn.BatchNorm2d(8)
        self.relu = mnn.ReLU()
        widths = ((8, 8, 1), (8, 8, 1), (8, 16, 2), (16, 16, 1))
        widths += ((16, 24, 2), (24, 24, 1), (24, 32, 2), (32, 32, 1))
        self.layers = mnn.SequentialCell(*(MsBlock(*w) for w in widths))
        self.norm = mnn.LayerNorm((32,), epsilon=epsilon)
        self.act = mnn.GELU(approximate=approximate)
        self.head = mnn.Dense(32, 5)

    def construct(self, x):
        x = self.layers(self.relu(self.bn1(self.conv1(x)))).mean((2, 3))
        return self.head(self.act(self.norm(x)))


def port(model, cell):
    """Copy the weights by hand; every name has to be found."""
    state = model.state_dict()
    for p in cell.get_parameters():
        stem, _, last = p.name.rpartition(".")
        p.set_data(to_mindspore(state[".".join(filter(None, (stem, RENAMED.get(last, last))))]))
    return cell


def pair_of_nets(**changed):
    torch.manual_seed(3)
    model = Net().eval()
    for m in model.modules():
        if isinstance(m, nn.BatchNorm2d):  # fresh statistics hide faults
            nn.init.normal_(m.running_mean, std=0.3)
            nn.init.uniform_(m.running_var, 0.5, 2.0)
    return model, port(model, MsNet(**changed))


X = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def names(trace, channel="forward"):
    return [r.name for r in trace.records if r.channel == channel]


def bits(cell):
    return {p.name: to_torch(p).clone() for p in cell.get_parameters()}


def assert_same(before, cell):
    after = bits(cell)
    assert before.keys() == after.keys()
    assert all(mindspore_state.same_bits(before[n], after[n]) for n in before)


def attributes(cell):
    return {n: {k: repr(v) for k, v in vars(c).items()} for n, c in cell.cells_and_names()}


# --- against torch --------------------------------------------------------------------------------


def test_the_same_network_differs_by_rounding_only():
    model, cell = pair_of_nets()
    ours, theirs = mk.capture(model, X), mk.capture(cell, X)
    assert names(ours) == names(theirs)
    diff = mk.compare(ours, theirs)
    assert len(diff.rows) == len(ours.records) == len(theirs.records) > 60
    assert max(r.R for r in diff.rows) <= 2
    assert diff.ok


@pytest.mark.parametrize(
    ("changed", "layer"),
    [
        ({"pad_mode": "same"}, "conv1"),
        ({"epsilon": 1e-3}, "norm"),
        ({"approximate": True}, "act"),
    ],
)
def test_a_planted_fault_is_found_where_it_is(changed, layer):
    model, cell = pair_of_nets(**changed)
    first = mk.compare(mk.capture(model, X), mk.capture(cell, X)).first_divergence
    assert first.layer == layer
    assert first.origin == "made here"
    assert first.R > 8


def test_another_batchnorm_epsilon_is_found():
    model, cell = pair_of_nets()
    cell.layers[2] = port(model.layers[2], MsBlock(8, 16, 2, eps=1e-3))
    first = mk.compare(mk.capture(model, X), mk.capture(cell, X)).first_divergence
    assert first.layer == "layers.2.bn2"


def test_runs_pair_by_structure_where_no_name_is_shared():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Hardswish(), nn.Flatten())
    model.append(nn.Linear(4 * 36, 2)).eval()

    class Other(mnn.Cell):
        def __init__(self):
            super().__init__()
            self.c = mnn.Conv2d(3, 4, 3, pad_mode="valid", has_bias=True)
            self.n, self.a, self.f = mnn.BatchNorm2d(4), mnn.HSwish(), mnn.Flatten()
            self.d = mnn.Dense(4 * 36, 2)

        def construct(self, x):
            return self.d(self.f(self.a(self.n(self.c(x)))))

    cell, x = Other(), torch.randn(1, 3, 8, 8)
    state = model.state_dict()
    norm = ("running_mean", "running_var", "weight", "bias")
    taken = {0: ("weight", "bias"), 1: norm, 4: ("weight", "bias")}
    for p, key in zip(
        cell.get_parameters(),
        (f"{layer}.{name}" for layer, parts in taken.items() for name in parts),
        strict=True,
    ):
        p.set_data(to_mindspore(state[key]))
    ours, theirs = mk.capture(model, x), mk.capture(cell, x)
    for pairing in ("auto", dict(zip("01234", "cnafd", strict=True))):
        diff = mk.compare(ours, theirs, pairing=pairing)
        assert [r.layer for r in diff.rows] == ["input", "0", "1", "2", "3", "4", "output"]
        assert max(r.R for r in diff.rows) <= 2


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("Dense", "Linear"),
        ("Conv2dTranspose", "ConvTranspose2d"),
        ("BatchNorm2d", "BatchNorm1d"),
        ("HSigmoid", "Hardsigmoid"),
        ("ReLU6", "ReLU6"),
        ("AdaptiveAvgPool2d", "AdaptiveAvgPool2d"),
    ],
)
def test_kinds_of_both_frameworks_are_one_family(theirs, ours):
    assert family(theirs) == family(ours)


# --- training -------------------------------------------------------------------------------------


def test_gradients_and_statistics_agree_in_train_mode():
    model, cell = pair_of_nets()
    model.train()
    cell.set_train()
    before = bits(cell)
    labels = torch.tensor([1, 4])
    ours = mk.capture(
        model, X, backward=True, loss=lambda out: nn.functional.cross_entropy(out, labels)
    )
    wanted = ms.Tensor([1, 4], ms.int32)
    theirs = mk.capture(cell, X, backward=True, loss=lambda out: ms.ops.cross_entropy(out, wanted))
    assert_same(before, cell)

    def renamed(name):
        stem, _, last = name.rpartition(".")
        back = {"weight": "gamma", "bias": "beta"} if "bn" in stem or "norm" in stem else {}
        back |= {"running_mean": "moving_mean", "running_var": "moving_variance"}
        return f"{stem}.{back.get(last, last)}"

    pairing = {
        r.name: renamed(r.name)
        for r in ours.records
        if r.channel in ("buffer", "parameter gradient") and "num_batches" not in r.name
    } | {"loss.input[labels]": "loss.input[wanted]"}
    diff = mk.compare(ours, theirs, pairing=pairing)
    assert names(ours, "gradient") == names(theirs, "gradient")
    rows = [r for r in diff.rows if "num_batches" not in r.layer]
    by_channel = {r.channel for r in rows}
    assert by_channel >= {"gradient", "parameter gradient", "buffer", "loss", "forward", "output"}
    assert len(names(theirs, "parameter gradient")) == len(list(model.parameters()))
    judged = [r for r in rows if r.R is not None and r.layer != "loss.input[labels]"]
    assert max((r.R, r.channel, r.layer) for r in judged)[0] <= 8


def test_a_shared_weight_has_one_gradient():
    class Twice(mnn.Cell):
        def __init__(self):
            super().__init__()
            self.d, self.r = mnn.Dense(3, 3), mnn.ReLU()

        def construct(self, x):
            return self.d(self.r(self.d(x)))

    trace = mk.capture(Twice(), torch.ones(2, 3), backward=True)
    assert names(trace) == ["d", "r", "d#1"]
    assert sorted(names(trace, "parameter gradient")) == ["d.bias", "d.weight"]
    # in backward order: the second call's gradient comes first
    assert names(trace, "gradient") == ["d", "r", "d#1"]


def test_a_frozen_network_has_no_gradient():
    cell = mnn.Dense(3, 2)
    for p in cell.get_parameters():
        p.requires_grad = False
    with pytest.raises(mk.MigrateError, match="depends on no parameter"):
        mk.capture(cell, torch.ones(1, 3), backward=True)
    cell = mnn.Dense(3, 2)
    with pytest.raises(mk.MigrateError, match="depends on no parameter"):
        mk.capture(cell, torch.ones(1, 3), backward=True, loss=lambda out: ms.Tensor(1.0))


def test_a_loss_that_is_no_number_is_refused():
    with pytest.raises(mk.MigrateError, match=r"the loss is float32 \(1, 2\)"):
        mk.capture(mnn.Dense(3, 2), torch.ones(1, 3), loss=lambda out: out)


def test_an_optimizer_is_refused():
    with pytest.raises(mk.MigrateError, match="optimizer"):
        mk.capture(mnn.Dense(3, 2), torch.ones(1, 3), optimizer=mnn.SGD)


# --- the cell is left as found --------------------------------------------------------------------


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("train", [False, True])
def test_the_cell_is_left_as_found(train, backward):
    _, cell = pair_of_nets()
    cell.set_train(train)
    before, was = bits(cell), attributes(cell)
    trace = mk.capture(cell, X, backward=backward)
    assert bool(names(trace, "buffer")) is train
    assert_same(before, cell)
    assert attributes(cell) == was


class Writes(mnn.Cell):
    """Writes to itself in every way, and may fail after."""

    def __init__(self, fails):
        super().__init__()
        self.d = mnn.Dense(3, 3)
        self.count = ms.Parameter(ms.Tensor([float("nan"), 1.0], ms.float32), requires_grad=False)
        self.half = ms.Parameter(ms.Tensor([1.0, 2.0], ms.bfloat16), requires_grad=False)
        self.mask, self.calls, self.fails, self.seen = ms.Tensor([1.0, 1.0]), 0, fails, []

    def construct(self, x):
        x = self.d(x)
        self.d.set_train(mode=True)
        ms.ops.assign(self.count, ms.Tensor([2.0, 3.0]))
        self.half.set_data(ms.Tensor([9.0, 8.0], ms.bfloat16))
        self.mask[0] = 7.0
        self.calls += 1
        self.seen.append(1)
        self.new = 1
        if self.fails:
            raise ValueError("on purpose")
        return x


@pytest.mark.parametrize("fails", [False, True])
def test_what_a_forward_writes_is_put_back(fails):
    cell = Writes(fails)
    before, was = bits(cell), attributes(cell)
    if fails:
        with pytest.raises(mk.MigrateError, match="on purpose"):
            mk.capture(cell, torch.ones(1, 3))
    else:
        trace = mk.capture(cell, torch.ones(1, 3))
        assert set(names(trace, "buffer")) == {"count", "half"}
        assert trace.tensor(trace.find("buffer", "half")).tolist() == [9.0, 8.0]
    assert_same(before, cell)
    assert attributes(cell) == was
    assert cell.mask.asnumpy().tolist() == [1.0, 1.0]


def test_settings_of_the_process_are_put_back(monkeypatch):
    monkeypatch.setenv("MS_JIT", "1")
    cell = mnn.Dense(3, 2)
    state, seed = ms.get_rng_state().asnumpy().tolist(), ms.get_seed()
    ms.set_context(mode=ms.GRAPH_MODE)
    try:
        trace = mk.capture(cell, torch.ones(1, 3), seed=5)
        assert ms.get_context("mode") == ms.GRAPH_MODE
        assert os.environ["MS_JIT"] == "1"
        assert trace.meta["compiled"] == ["(graph mode)"]
        compiled = torch.from_numpy(cell(ms.Tensor(np.ones((1, 3), np.float32))).asnumpy())
        assert torch.allclose(trace.tensor(trace.find("output", "output")), compiled)
    finally:
        ms.set_context(mode=ms.PYNATIVE_MODE)
    assert ms.get_seed() == seed
    assert ms.get_rng_state().asnumpy().tolist() == state


def test_a_cell_under_jit_shows_its_layers_and_says_so():
    class Inner(mnn.Cell):
        def __init__(self):
            super().__init__()
            self.d, self.r = mnn.Dense(3, 3), mnn.ReLU()

        @ms.jit
        def construct(self, x):
            return self.r(self.d(x))

    cell = mnn.SequentialCell(Inner(), mnn.Dense(3, 2))
    trace = mk.capture(cell, torch.ones(1, 3))
    assert names(trace) == ["0.d", "0.r", "1"]
    assert trace.meta["compiled"] == ["0"]


def test_a_cell_that_takes_no_hooks_and_one_that_no_seed_fixes_are_named():
    class Own(mnn.Cell):
        def construct(self, x):
            return x * 2

        def bprop(self, x, out, dout):
            return (dout * 2,)

    cell = mnn.SequentialCell(mnn.Dense(3, 2), Own(), mnn.Dropout(p=0.5))
    cell.set_train()
    trace = mk.capture(cell, torch.ones(1, 3))
    assert trace.meta["unseen"] == ["1"]
    assert trace.meta["random"] == ["2"]


# --- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype",
    [d for d in DTYPES.values() if d not in (torch.uint16, torch.uint32, torch.uint64)],
)
@pytest.mark.parametrize("shape", [(), (3,), (0, 2), (4, 3)])
def test_every_format_passes_both_ways_bit_for_bit(dtype, shape):
    kind = torch.float32 if dtype.is_floating_point or dtype.is_complex else torch.int64
    given = (torch.randn(shape) * 50).to(kind).to(dtype)
    if shape == (4, 3) and dtype.is_floating_point:
        given[0] = torch.tensor([float("nan"), float("-inf"), -0.0])
    there = to_mindspore(given)
    assert tuple(there.shape) == shape
    assert mindspore_state.same_bits(to_torch(there), given)
    if len(shape) == 2 and given.numel():
        assert mindspore_state.same_bits(to_torch(there.T), given.T)


def test_what_mindspore_has_no_format_for_is_refused():
    with pytest.raises(mk.MigrateError, match="float8_e4m3fn"):
        mk.capture(mnn.ReLU(), torch.ones(2).to(torch.float8_e4m3fn))
    with pytest.raises(mk.MigrateError, match="sparse"):
        mk.capture(mnn.ReLU(), torch.eye(2).to_sparse())


@pytest.mark.parametrize(
    "given",
    [torch.tensor([1, 3]), np.array([1, 3]), ms.Tensor([1, 3], ms.int64)],
    ids=["torch", "numpy", "mindspore"],
)
def test_inputs_keep_their_format(given):
    trace = mk.capture(mnn.Embedding(5, 2), given)
    assert trace.find("input", "input").dtype == "int64"
    assert trace.tensor(trace.find("input", "input")).tolist() == [1, 3]


@pytest.mark.parametrize("kind", [ms.float16, ms.bfloat16])
def test_half_outputs_are_exact(kind):
    class Cast(mnn.Cell):
        def construct(self, x):
            return x.astype(kind)

    x = torch.randn(100)
    trace = mk.capture(Cast(), x)
    record = trace.find("output", "output")
    dtype = torch.float16 if kind == ms.float16 else torch.bfloat16
    assert torch.equal(trace.tensor(record), x.to(dtype))


def test_nested_results_keyword_arguments_and_formats_as_arguments():
    class Nested(mnn.Cell):
        def __init__(self):
            super().__init__()
            self.d, self.c = mnn.Dense(3, 2), Casts()

        def construct(self, x, scale=None):
            y = self.d(x)
            return y, {"a.b": self.c(y * scale, ms.float16)}

    class Casts(mnn.Cell):
        def construct(self, x, kind):
            return [x.astype(kind), (x, None)]

    trace = mk.capture(Nested(), torch.ones(1, 3), kwargs={"scale": torch.tensor(2.0)})
    assert names(trace, "input") == ["input[0][0]", "input[1]['scale']"]
    assert names(trace) == ["d", "c[0]", "c[1][0]"]
    assert names(trace, "output") == ["output[0]", "output[1]['a.b'][0]", "output[1]['a.b'][1][0]"]
    taken = trace.find("forward", "c[0]").inputs[0]["tuple"]
    assert taken[1] == {"dtype": "float16"}


def test_values_written_in_place_are_kept_as_they_were():
    class InPlace(mnn.Cell):
        def __init__(self):
            super().__init__()
            self.first, self.second = mnn.ReLU(), mnn.ReLU()

        def construct(self, x):
            y = self.first(x)
            y[0, 1] = 5.0  # between the elements a recorder looks at
            return self.second(y)

    x = torch.zeros(100, 100)
    trace = mk.capture(InPlace(), x)
    assert not trace.tensor(trace.find("forward", "first")).any()
    key = trace.find("forward", "second").inputs[0]["tuple"][0]["tensor"]
    assert key != trace.find("forward", "first").tensor
    assert trace.tensor(trace.find("forward", "second"))[0, 1] == 5
    assert not x.any()


def test_the_mirror_forgets_what_mindspore_has_forgotten():
    mirror = Mirror()
    t = ms.Tensor(np.ones(10, np.float32))
    assert mirror(t) is mirror(t)
    del t
    assert not mirror._seen


def test_nan_is_recorded_and_judged():
    model, cell = pair_of_nets()
    before = to_torch(cell.layers[3].bn1.gamma)
    before[2] = float("nan")
    first = mk.compare(mk.capture(model, X), mk.capture(cell, X)).first_divergence
    assert first.layer == "layers.3.bn1"


# --- choice of layers, names, failures ------------------------------------------------------------


def test_layers_and_windows_are_chosen_by_name():
    _, cell = pair_of_nets()
    assert names(mk.capture(cell, X, layers=["layers.1", "*.down"]))[:2] == [
        "layers.0.down",
        "layers.1.conv1",
    ]
    window = names(mk.capture(cell, X, start="norm", end="act"))
    assert window == ["norm", "act"]
    with pytest.raises(mk.MigrateError, match="no layer is called 'norn'"):
        mk.capture(cell, X, layers="norn")


def test_odd_names_and_a_single_layer():
    class Odd(mnn.Cell):
        def __init__(self):
            super().__init__()
            for name in ("a#1", "<b>", "λ"):
                self.insert_child_to_cell(name, mnn.ReLU())

        def construct(self, x):
            for cell in self.cells():
                x = cell(cell(x))
            return x

    trace = mk.capture(Odd(), torch.ones(2))
    assert names(trace) == ["a#1", "a#1#1", "<b>", "<b>#1", "λ", "λ#1"]
    assert names(mk.capture(mnn.Dense(2, 2), torch.ones(1, 2))) == ["(network)"]


def test_an_error_names_the_cell_in_which_it_happened():
    class Bad(mnn.Cell):
        def __init__(self, middle):
            super().__init__()
            self.a, self.middle, self.z = mnn.ReLU(), middle, mnn.ReLU()

        def construct(self, x):
            return self.z(self.middle(self.a(x)))

    for middle, text in ((mnn.Dense(4, 2), "MatMul"), (ms.mint.nn.GELU(), "GeluExt")):
        with pytest.raises(mk.MigrateError, match=text) as caught:
            mk.capture(Bad(middle), torch.ones(2, 3))
        assert "layer middle" in str(caught.value)
        assert "float32 (2, 3)" in str(caught.value)
        assert "C++" not in str(caught.value)
        # the queue holds no error for the next one
        assert ms.Tensor([1.0]).add(1).asnumpy().tolist() == [2.0]
    with pytest.raises(mk.MigrateError, match="layer middle"):
        mk.capture(Bad(mnn.Dense(4, 2)), torch.ones(2, 3), backward=True)
    trace = mk.capture(Bad(mnn.Dense(3, 2)), torch.ones(2, 3), backward=True)
    assert names(trace, "gradient") == ["z", "middle"]  # a comes before any parameter


def test_a_full_disk_in_the_backward_is_told_as_such(monkeypatch):
    from migrate_kit.layers.capture import TraceRecorder

    real = TraceRecorder.add

    def add(self, source, tensor, inputs=None):
        if source.channel == "gradient":
            raise mk.MigrateError("the disk is full", "here", "free some space")
        real(self, source, tensor, inputs)

    monkeypatch.setattr(TraceRecorder, "add", add)
    with pytest.raises(mk.MigrateError, match="the disk is full"):
        mk.capture(mnn.Dense(3, 2), torch.ones(1, 3), backward=True)


def test_only_a_cell_is_taken():
    with pytest.raises(mk.MigrateError, match="not a Linear"):
        mk.MindSporeRunner(nn.Linear(2, 2))


# --- the import -----------------------------------------------------------------------------------


def test_a_missing_mindspore_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mindspore", None)
    with pytest.raises(mk.MigrateError, match="not installed") as caught:
        mindspore_import.load()
    assert "migrate-kit[workbook]" in caught.value.fix


def test_a_broken_mindspore_says_why_and_where_to_ask(monkeypatch):
    def broken(_):
        raise TypeError("Descriptors cannot be created directly.\nsecond line")

    monkeypatch.setattr(mindspore_import, "import_module", broken)
    with pytest.raises(mk.MigrateError) as caught:
        mindspore_import.load()
    assert caught.value.what.endswith("TypeError: Descriptors cannot be created directly.")
    assert "migrate-kit explain" in caught.value.fix


def test_the_users_own_cap_is_respected(monkeypatch, tmp_path):
    monkeypatch.setattr(mindspore_import, "_has_avx512", lambda: True)
    cap = mindspore_import._cap_onednn.__wrapped__
    assert cap(ms.__file__) in (0, 2)
    assert cap(str(tmp_path / "mindspore.py")) is None
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE")
    assert cap(ms.__file__) is None


@pytest.mark.parametrize("first", ["torch", "mindspore"])
def test_either_framework_may_be_imported_first(first, tmp_path):
    import subprocess

    lines = {
        "torch": "import torch",
        "mindspore": "from migrate_kit.layers.runners import mindspore_import as m; m.load()",
    }
    other = lines[{"torch": "mindspore", "mindspore": "torch"}[first]]
    code = "\n".join(
        (
            lines[first],
            other,
            "import migrate_kit as mk, mindspore as ms, torch, os",
            "t = mk.capture(ms.nn.Conv2d(3, 2, 3), torch.ones(1, 3, 8, 8))",
            "assert len(t.records) == 3 and os.environ['GLOG_v'] == '3'",
        )
    )
    env = {k: v for k, v in os.environ.items() if k != "GLOG_v"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
