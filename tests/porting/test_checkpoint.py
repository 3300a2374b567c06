"""Checkpoints from PyTorch to MindSpore and back; MindSpore itself is the judge."""

import errno
import os
import stat
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import migrate_kit as mk
from migrate_kit import files
from migrate_kit.checkpoints.formats import mindspore_writer
from migrate_kit.checkpoints.state import Entry, StateDict
from migrate_kit.errors import MigrateError
from migrate_kit.layers.runners import mindspore_import
from migrate_kit.porting.checkpoint import to_mindspore_checkpoint, to_state_dict

FORMATS = ("ckpt", "safetensors")
DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "bfloat16", "float32", "float64",
)  # fmt: skip


class Network(nn.Module):
    """Layers of every kind whose tensors change their name or shape, one shared."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 6)
        self.conv = nn.Conv1d(4, 6, 3)
        self.up = nn.ConvTranspose1d(6, 4, 3)
        self.bn = nn.BatchNorm1d(6)
        self.volume = nn.BatchNorm3d(3)
        self.norm = nn.LayerNorm(6)
        self.groups = nn.GroupNorm(2, 6)
        self.act = nn.PReLU(6)
        self.block = nn.TransformerEncoderLayer(6, 2, 8)
        self.head = nn.Linear(6, 7, bias=False)
        self.head.weight = self.embedding.weight
        self.scale = nn.Parameter(torch.ones(6))


def filled(model, seed=0):
    torch.manual_seed(seed)
    for tensor in model.state_dict().values():
        if tensor.is_floating_point():
            tensor.uniform_(0.1, 2)
    return model


def bits(tensor):
    flat = tensor.contiguous().reshape(-1)
    return (
        tuple(tensor.shape),
        tensor.dtype,
        flat.view(torch.uint8).tolist() if flat.numel() else [],
    )


def equal(one, other):
    assert one.keys() == other.keys()
    for name in one:
        assert bits(one[name]) == bits(other[name]), name


def without_counters(state):
    return {k: v for k, v in state.items() if not k.endswith("num_batches_tracked")}


def of_values(dtype, shape):
    torch.manual_seed(1)
    tensor = torch.randint(-90, 90, shape)
    return (tensor > 0) if dtype == "bool" else tensor.to(getattr(torch, dtype))


def as_torch(parameter):
    if str(parameter.dtype) == "BFloat16":
        return torch.from_numpy(parameter.float().asnumpy()).bfloat16()
    array = parameter.asnumpy()
    # MindSpore's uint64 is C's unsigned long long, which torch does not know by that name.
    return torch.from_numpy(array.astype(array.dtype.str))


@pytest.mark.parametrize("form", FORMATS)
def test_mindspore_loads_every_dtype(form, tmp_path):
    ms = mindspore_import.load()
    state = {f"{d}.{len(s)}": of_values(d, s) for d in DTYPES for s in ((2, 3), (5,), ())}
    out = tmp_path / f"a.{form}"
    written = to_mindspore_checkpoint(state, out)
    assert written.ok
    found = ms.load_checkpoint(str(out), format=form)
    equal({k: as_torch(v) for k, v in found.items()}, state)


def test_mindspore_loads_what_is_over_its_slice(tmp_path, monkeypatch):
    ms = mindspore_import.load()
    # MindSpore's is 512 MiB; a reader joins entries of one name whatever their length.
    monkeypatch.setattr(mindspore_writer, "_SLICE", 1024)
    state = {"a": torch.randn(33, 41), "b": torch.randn(3)}
    to_mindspore_checkpoint(state, tmp_path / "a.ckpt")
    found = ms.load_checkpoint(str(tmp_path / "a.ckpt"))
    equal({k: as_torch(v) for k, v in found.items()}, state)


def test_a_cell_takes_every_tensor(tmp_path):
    ms = mindspore_import.load()

    class Cell(ms.nn.Cell):
        def __init__(self):
            super().__init__()
            self.embedding = ms.nn.Embedding(7, 6)
            self.conv = ms.nn.Conv1d(4, 6, 3, has_bias=True)
            self.up = ms.nn.Conv1dTranspose(6, 4, 3, has_bias=True)
            self.bn = ms.nn.BatchNorm1d(6)
            self.volume = ms.nn.BatchNorm3d(3)
            self.norm = ms.nn.LayerNorm((6,))
            self.groups = ms.nn.GroupNorm(2, 6)
            self.act = ms.nn.PReLU(6)
            self.block = ms.nn.TransformerEncoderLayer(6, 2, 8)
            self.head = ms.nn.Dense(6, 7, has_bias=False)
            self.scale = ms.Parameter(ms.ops.zeros((6,)))

    model, cell = filled(Network()), Cell()
    written = to_mindspore_checkpoint(model.state_dict(), tmp_path / "a.ckpt", model=model)
    missing, unused = ms.load_param_into_net(cell, ms.load_checkpoint(str(written.path)))
    assert (missing, unused) == ([], [])
    own = model.state_dict()
    for name, parameter in cell.parameters_and_names():
        row = next(r for r in written.rows if r.name == name)
        assert torch.equal(
            as_torch(parameter).reshape(own[row.torch_name].shape), own[row.torch_name]
        )


@pytest.mark.parametrize("form", FORMATS)
def test_a_network_comes_back_as_it_was(form, tmp_path):
    model, out = filled(Network()), tmp_path / f"a.{form}"
    to_mindspore_checkpoint(model.state_dict(), out, model=model)
    with torch.device("meta"):
        empty = Network()
    equal(dict(to_state_dict(out, model=empty)), without_counters(model.state_dict()))
    other = Network()
    assert (
        str(other.load_state_dict(to_state_dict(out, model=other)))
        == "<All keys matched successfully>"
    )
    equal(without_counters(other.state_dict()), without_counters(model.state_dict()))


@st.composite
def states(draw):
    """State dicts of layers whose names and shapes tell what they are."""
    state = {}
    for index in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["linear", "batch", "layer", "scalar", "odd"]))
        width = draw(st.integers(1, 4))
        shapes = {
            "linear": {"weight": (width, 3), "bias": (width,)},
            "batch": dict.fromkeys(("weight", "bias", "running_mean", "running_var"), (width,)),
            "layer": {"weight": (width,), "bias": (width,)},
            "scalar": {"logit_scale": ()},
            "odd": {"weight_ih_l0": (width, 2, 1, 2), "gamma": (width,)},
        }[kind]
        for leaf, shape in shapes.items():
            dtype = getattr(torch, draw(st.sampled_from(DTYPES)))
            size = torch.Size(shape).numel() * dtype.itemsize
            raw = draw(st.binary(min_size=size, max_size=size))
            if dtype == torch.bool:
                raw = bytes(byte & 1 for byte in raw)
            state[f"层{index}.{leaf}"] = torch.frombuffer(bytearray(raw), dtype=dtype).reshape(
                shape
            )
    return state


@settings(max_examples=60, deadline=None)
@given(state=states(), form=st.sampled_from(FORMATS))
def test_every_bit_comes_back(state, form, tmp_path_factory):
    out = tmp_path_factory.mktemp("back") / f"a.{form}"
    to_mindspore_checkpoint(state, out)
    equal(dict(to_state_dict(out)), state)


def test_a_training_checkpoint_from_its_file(tmp_path):
    model = filled(nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)))
    state = {f"module.{k}": v for k, v in model.state_dict().items()}
    torch.save({"epoch": 3, "state_dict": state}, tmp_path / "a.pth")
    written = to_mindspore_checkpoint(tmp_path / "a.pth", tmp_path / "a.ckpt")
    assert list(written.names.values()) == [
        "0.weight", "0.bias", "1.gamma", "1.beta", "1.moving_mean", "1.moving_variance",
    ]  # fmt: skip
    assert written.left_out == ["module.1.num_batches_tracked"]
    assert any("'module.'" in f.what for f in written.findings)


def test_what_names_alone_do_not_tell_is_said(tmp_path):
    model = filled(Network())
    written = to_mindspore_checkpoint(model.state_dict(), tmp_path / "a.ckpt")
    said = {f.what.partition(" ")[2]: f.where for f in written.findings}
    assert said["tensors kept as weight: Embedding's would be embedding_table"].startswith("embed")
    assert said["tensor kept as weight: PReLU's would be w, and LayerNorm's without a bias gamma"]
    assert said["tensors kept in three dimensions: Conv1d's has four in MindSpore"]
    assert "norm.weight" in said["tensors taken for LayerNorm's or GroupNorm's by their shape"]
    assert written.names["norm.weight"] == "norm.gamma"
    assert written.ok


def test_a_batch_norm_beside_3d_convolutions_may_be_3d(tmp_path):
    model = nn.Sequential(nn.Conv3d(1, 2, 3), nn.BatchNorm3d(2))
    written = to_mindspore_checkpoint(model.state_dict(), tmp_path / "a.ckpt")
    assert [f.where for f in written.findings if "BatchNorm3d" in f.what] == ["1.running_mean"]
    written = to_mindspore_checkpoint(model.state_dict(), tmp_path / "a.ckpt", model=model)
    assert written.names["1.running_mean"] == "1.bn2d.moving_mean"
    assert written.findings == []


def test_the_model_and_the_checkpoint_are_compared(tmp_path):
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    state = {"0.weight": torch.ones(2, 4), "0.bias": torch.ones(2), "9.weight": torch.ones(2, 2)}
    written = to_mindspore_checkpoint(state, tmp_path / "a.ckpt", model=model)
    said = {f.what: f.where for f in written.findings}
    assert said["1 tensor not in the model, named by their names alone"] == "9.weight"
    assert said["2 tensors of the model not in the checkpoint"] == "1.weight, 1.bias"
    assert said["1 tensor of another shape than in the model"] == "0.weight"


def test_names_of_ones_own(tmp_path):
    model = nn.Sequential(nn.Conv1d(3, 2, 3), nn.Linear(2, 2))
    names = {"0.weight": "stem.weight", "1.bias": None}
    written = to_mindspore_checkpoint(
        model.state_dict(), tmp_path / "a.ckpt", model=model, names=names
    )
    assert written.names == {"0.weight": "stem.weight", "0.bias": "0.bias", "1.weight": "1.weight"}
    assert written.rows[0].shape == (2, 3, 1, 3)
    assert written.left_out == ["1.bias"]
    with pytest.raises(MigrateError, match="2 names of no tensor: a, b"):
        to_mindspore_checkpoint(model.state_dict(), tmp_path / "b.ckpt", names={"a": "b", "b": "c"})
    with pytest.raises(MigrateError, match=r"two tensors would be called 1\.weight"):
        to_mindspore_checkpoint(
            model.state_dict(), tmp_path / "b.ckpt", names={"0.weight": "1.weight"}
        )
    assert not (tmp_path / "b.ckpt").exists()


def test_tied_weights_are_written_under_each_name(tmp_path):
    ms = mindspore_import.load()

    class Tied(ms.nn.Cell):
        def __init__(self, *, tied):
            super().__init__()
            self.a = ms.nn.Dense(3, 3, has_bias=False)
            self.b = ms.nn.Dense(3, 3, has_bias=False)
            if tied:
                self.b.weight = self.a.weight

    model = nn.ModuleDict({k: nn.Linear(3, 3, bias=False) for k in "ab"})
    model["b"].weight = model["a"].weight
    written = to_mindspore_checkpoint(model.state_dict(), tmp_path / "a.ckpt", model=model)
    assert [f.where for f in written.findings if "tied" in f.what] == ["b.weight"]
    for tied in (True, False):
        cell = Tied(tied=tied)
        missing, _ = ms.load_param_into_net(cell, ms.load_checkpoint(str(written.path)))
        assert missing == []
        for layer in (cell.a, cell.b):
            assert torch.equal(as_torch(layer.weight), model["a"].weight)
    # What MindSpore saves of a tied cell has the first name only; torch wants both.
    ms.save_checkpoint(Tied(tied=True), str(tmp_path / "b.ckpt"))
    back = to_state_dict(tmp_path / "b.ckpt", model=model)
    assert torch.equal(back["a.weight"], back["b.weight"])
    assert set(back) == {"a.weight", "b.weight"}


@pytest.mark.parametrize("dtype", ["fp16", torch.bfloat16, "torch.float32", "fp64"])
def test_a_dtype_for_the_floats(dtype, tmp_path):
    state = {"a": torch.randn(3, dtype=torch.float64), "n": torch.arange(3), "b": torch.randn(2)}
    written = to_mindspore_checkpoint(state, tmp_path / "a.ckpt", dtype=dtype)
    name = {"fp16": "float16", "fp64": "float64"}.get(dtype, str(dtype).removeprefix("torch."))
    assert [row.written_as for row in written.rows] == [name, "int64", name]
    back = to_state_dict(tmp_path / "a.ckpt")
    for key, value in state.items():
        assert torch.equal(back[key], value.to(getattr(torch, name)) if key != "n" else value)
    assert written.ok


def test_overflow_and_nan_are_counted(tmp_path):
    state = {
        "big": torch.tensor([1e6, -1e6, 65504.0, float("inf")]),
        "nan": torch.tensor([float("nan"), 1.0]),
        "tiny": torch.tensor([1e-12, 1.0]),
    }
    written = to_mindspore_checkpoint(state, tmp_path / "a.ckpt", dtype="fp16")
    assert [(f.level, f.what, f.where) for f in written.findings[:3]] == [
        ("error", "2 values of 1 tensor too large for float16, now infinite", "big"),
        ("warning", "2 values of 2 tensors NaN or infinite in the source", "big, nan"),
        ("info", "1 value of 1 tensor too small for float16, now zero", "tiny"),
    ]
    assert not written.ok
    assert to_mindspore_checkpoint(state, tmp_path / "a.ckpt").ok
    assert (
        to_mindspore_checkpoint(
            {"a": torch.tensor([1e39], dtype=torch.float64)}, tmp_path / "a.ckpt", dtype="fp32"
        ).ok
        is False
    )


def test_an_8_bit_float_is_refused_or_converted(tmp_path):
    state = {"a": torch.tensor([0.5, 448.0]).to(torch.float8_e4m3fn)}
    for form in FORMATS:
        with pytest.raises(MigrateError, match="MindSpore reads no float8_e4m3fn"):
            to_mindspore_checkpoint(state, tmp_path / f"a.{form}")
    to_mindspore_checkpoint(state, tmp_path / "a.ckpt", dtype="fp32")
    assert to_state_dict(tmp_path / "a.ckpt")["a"].tolist() == [0.5, 448.0]
    state = {"a": torch.tensor([float("nan"), 1.0]).to(torch.float8_e4m3fn)}
    written = to_mindspore_checkpoint(state, tmp_path / "a.ckpt", dtype="fp32")
    assert [f.what for f in written.findings] == [
        "1 value of 1 tensor NaN or infinite in the source"
    ]


def test_a_tensor_without_values_is_left_out_of_a_ckpt(tmp_path):
    state = {"a": torch.ones(2), "empty": torch.zeros(0, 3)}
    written = to_mindspore_checkpoint(state, tmp_path / "a.ckpt")
    assert written.left_out == ["empty"]
    assert any("without values" in f.what and f.where == "empty" for f in written.findings)
    assert to_mindspore_checkpoint(state, tmp_path / "a.safetensors").left_out == []


@pytest.mark.parametrize("bad", [torch.zeros(2).to_sparse(), torch.zeros(2, device="meta")])
@pytest.mark.parametrize("form", FORMATS)
def test_what_has_no_dense_values_is_refused(bad, form, tmp_path):
    with pytest.raises(MigrateError, match="dense tensor with its values"):
        to_mindspore_checkpoint({"a": bad}, tmp_path / f"a.{form}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("out", "options", "said"),
    [
        ("a.pth", {}, "no format 'pth'"),
        ("a", {}, "no format ''"),
        ("a.ckpt", {"format": "safetensor"}, "did you mean 'safetensors'"),
        ("a.ckpt", {"format": "safetensors"}, "does not end in .safetensors"),
        ("a.ckpt", {"dtype": "int8"}, "no floating-point dtype 'int8'"),
        ("a.ckpt", {"dtype": torch.int8}, "no floating-point dtype 'torch.int8'"),
    ],
)
def test_wrong_arguments(out, options, said, tmp_path):
    with pytest.raises(MigrateError, match=said):
        to_mindspore_checkpoint({"a": torch.ones(1)}, tmp_path / out, **options)
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_that_is_no_state_dict(tmp_path):
    with pytest.raises(MigrateError, match="no tensor to write"):
        to_mindspore_checkpoint({"state_dict": {"a": torch.ones(1)}}, tmp_path / "a.ckpt")
    written = to_mindspore_checkpoint({"a": torch.ones(1), "epoch": 3}, tmp_path / "a.ckpt")
    assert [(f.what, f.where) for f in written.findings][-1:] == [
        ("1 value not taken: no tensor", "epoch")
    ]


def test_the_read_only_file_of_mindspore_is_replaced(tmp_path):
    ms = mindspore_import.load()
    out = tmp_path / "a.ckpt"
    ms.save_checkpoint([{"name": "a", "data": ms.Tensor([1.0])}], str(out))
    assert stat.S_IMODE(out.stat().st_mode) == 0o400
    inode = out.stat().st_ino
    to_mindspore_checkpoint({"a": torch.tensor([2.0])}, out)
    assert to_state_dict(out)["a"].tolist() == [2.0]
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(out.stat().st_mode) == 0o666 & ~mask
    assert out.stat().st_uid == os.getuid()
    assert out.stat().st_ino != inode  # renamed over, not written into


def test_a_checkpoint_can_be_written_over_its_source(tmp_path):
    out = tmp_path / "a.ckpt"
    state = {"a": torch.randn(300, 300), "b": torch.randn(5)}
    to_mindspore_checkpoint(state, out)
    to_mindspore_checkpoint(out, out, dtype="fp64")
    equal(dict(to_state_dict(out)), {k: v.double() for k, v in state.items()})


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    out = tmp_path / "a.ckpt"
    to_mindspore_checkpoint({"a": torch.ones(2)}, out)
    before = out.read_bytes()

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    state = StateDict(
        {
            "a": Entry((2,), torch.float32, lambda: torch.ones(2)),
            "b": Entry((2,), torch.float32, full),
        }
    )
    with pytest.raises(MigrateError, match="No space left on device"):
        to_mindspore_checkpoint(state, out)
    assert out.read_bytes() == before
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("dtype", [None, "fp64"])
def test_one_tensor_at_a_time_is_in_memory(dtype, tmp_path):
    alive, most, read = [0], [0], [0]

    class Counted(np.ndarray):
        def __del__(self):
            alive[0] -= 1

    def make():
        alive[0] += 1
        read[0] += 1
        most[0] = max(most[0], alive[0])
        return torch.from_numpy(np.ones(1000, "f4").view(Counted))

    state = StateDict({f"{n}": Entry((1000,), torch.float32, make) for n in range(4)})
    to_mindspore_checkpoint(state, tmp_path / "a.ckpt", dtype=dtype)
    assert (most, read) == ([1], [4])


def test_back_without_a_model(tmp_path):
    ms = mindspore_import.load()
    cell = ms.nn.SequentialCell(
        ms.nn.Conv2d(3, 4, 3, has_bias=True), ms.nn.BatchNorm2d(4), ms.nn.LayerNorm((4,)),
        ms.nn.Embedding(5, 4), ms.nn.Dense(4, 2),
    )  # fmt: skip
    ms.save_checkpoint(cell, str(tmp_path / "a.ckpt"))
    state = to_state_dict(tmp_path / "a.ckpt")
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.LayerNorm(4), nn.Embedding(5, 4), nn.Linear(4, 2)
    )
    assert str(model.load_state_dict(state)) == "<All keys matched successfully>"
    for name, parameter in cell.parameters_and_names():
        assert any(torch.equal(as_torch(parameter), v) for v in state.values()), name


@pytest.mark.parametrize("form", FORMATS)
def test_what_an_optimizer_left_is_not_taken(form, tmp_path):
    state = {"a.weight": torch.ones(2, 2), "a.bias": torch.ones(2)}
    more = {"moments.a.weight": torch.ones(2, 2), "learning_rate": torch.tensor(0.1)}
    to_mindspore_checkpoint(state | more, tmp_path / f"a.{form}")
    assert list(to_state_dict(tmp_path / f"a.{form}")) == ["a.weight", "a.bias"]


def test_two_names_that_meet_on_the_way_back(tmp_path):
    state = {k: torch.ones(2) for k in ("a.gamma", "a.beta", "a.weight")}
    to_mindspore_checkpoint(state, tmp_path / "a.ckpt")
    with pytest.raises(MigrateError, match=r"two tensors would be called a\.weight"):
        to_state_dict(tmp_path / "a.ckpt")


def test_a_model_with_another_kind_of_layer(tmp_path):
    to_mindspore_checkpoint({"0.weight": torch.ones(4, 3, 3, 3)}, tmp_path / "a.ckpt")
    with pytest.raises(MigrateError, match="does not fit the shape"):
        to_state_dict(tmp_path / "a.ckpt", model=nn.Sequential(nn.Conv1d(3, 4, 3)))


def test_no_checkpoint_of_mindspores(tmp_path):
    torch.save({"a": torch.ones(1)}, tmp_path / "a.pth")
    with pytest.raises(MigrateError, match="no checkpoint of MindSpore's: torch zip"):
        to_state_dict(tmp_path / "a.pth")


def test_the_result_is_said_and_escaped(tmp_path):
    model = nn.Sequential(nn.Conv1d(3, 2, 3), nn.BatchNorm1d(2))
    state = {**model.state_dict(), "<b>": torch.ones(2)}
    written = mk.to_mindspore_checkpoint(state, tmp_path / "a.ckpt", model=model)
    frame = written.to_frame()
    assert list(frame.columns) == [
        "torch", "mindspore", "transform", "dtype", "written as", "shape",
    ]  # fmt: skip
    assert frame.iloc[0].tolist() == [
        "0.weight", "0.weight", "unsqueeze(2)", "float32", "float32", (2, 3, 1, 3),
    ]  # fmt: skip
    page = written._repr_html_()
    assert "<b>:" not in page.replace("<b>info</b>:", "").replace("<b>warning</b>:", "")
    assert "&lt;b&gt;" in page
    kept = written.to_dict()
    assert kept["kind"] == "mindspore_checkpoint"
    assert kept["names"]["1.weight"] == "1.gamma"
    assert repr(written) == "WrittenCheckpoint(a.ckpt: 7 tensors, float32 (7); 1 left out)"


def test_neither_way_imports_mindspore(tmp_path):
    program = (
        "import sys, torch, migrate_kit as mk\n"
        "w = mk.to_mindspore_checkpoint({'a': torch.ones(2)}, 'a.ckpt')\n"
        "w._repr_html_(), w.to_dict(), dict(mk.to_state_dict('a.ckpt'))\n"
        "assert 'mindspore' not in sys.modules\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(files.Path(mk.__file__).parents[1])}
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, check=True)
