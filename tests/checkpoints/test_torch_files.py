"""PyTorch's own files, read without PyTorch's reader and compared with it."""

import argparse
import collections
import pickle
import zipfile

import numpy as np
import pytest
import torch

from migrate_kit.checkpoints.load import load_checkpoint
from migrate_kit.checkpoints.write import FORMATS, write_state_dict
from migrate_kit.errors import MigrateError

BOTH = pytest.mark.parametrize("new", [True, False], ids=["zip", "legacy"])


def same(a, b):
    """Whether two tensors are the same in every bit, with their dtype and shape."""
    if a.dtype != b.dtype or a.shape != b.shape or a.layout != b.layout:
        return False
    if a.layout != torch.strided:
        a, b = a.to_dense(), b.to_dense()
    if a.is_quantized:
        return same(a.int_repr(), b.int_repr()) and same(a.dequantize(), b.dequantize())
    return a.contiguous().numpy(force=True).tobytes() == b.contiguous().numpy(force=True).tobytes()


def kinds():
    """Return a state_dict of every kind of tensor that both containers hold."""
    torch.manual_seed(0)
    base = torch.randn(6, 8)
    state = collections.OrderedDict(
        plain=torch.randn(3, 4),
        scalar=torch.tensor(2.5),
        empty=torch.zeros(0, 5),
        transposed=base.t(),
        view=base[1:3, ::2],
        tied=base,
        expanded=torch.ones(1).expand(7),
        channels_last=torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
        parameter=torch.nn.Parameter(torch.randn(2)),
        steps=torch.tensor(7),
        mask=torch.tensor([True, False]),
        complex=torch.randn(3, dtype=torch.complex64),
    )
    for dtype in (torch.float64, torch.float16, torch.int8, torch.int16, torch.int32, torch.uint8):
        state[str(dtype)] = torch.arange(5).to(dtype)
    return state


@BOTH
def test_every_kind_of_tensor_is_what_torch_reads(tmp_path, new):
    torch.save(kinds(), tmp_path / "a.pth", _use_new_zipfile_serialization=new)
    found = load_checkpoint(tmp_path / "a.pth")
    expected = torch.load(tmp_path / "a.pth", weights_only=True)
    assert list(found.state_dict) == list(expected)
    assert all(same(found.state_dict[k], v) for k, v in expected.items())
    assert all(found.state_dict.entries[k].shape == tuple(v.shape) for k, v in expected.items())
    assert (found.kind, found.wanted) == ("state_dict", [])


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "uint16", "uint64"])
def test_newer_dtypes(tmp_path, name):
    state = {"w": torch.arange(4, dtype=torch.float32).to(getattr(torch, name))}
    torch.save(state, tmp_path / "a.pth")
    read = load_checkpoint(tmp_path / "a.pth").state_dict["w"]
    assert read.dtype == state["w"].dtype
    assert torch.equal(read.view(torch.uint8), state["w"].view(torch.uint8))


@BOTH
@pytest.mark.filterwarnings("ignore:.*deprecated:UserWarning")
def test_quantized_and_sparse_tensors(tmp_path, new):
    torch.manual_seed(0)
    x = torch.randn(4, 3)
    zeros = torch.zeros(4, dtype=torch.int64)
    state = {
        "tensor": torch.quantize_per_tensor(x, 0.1, 3, torch.quint8),
        "channel": torch.quantize_per_channel(x, torch.rand(4) + 0.1, zeros, 0, torch.qint8),
        "sparse": torch.eye(3).to_sparse(),
    }
    torch.save(state, tmp_path / "a.pth", _use_new_zipfile_serialization=new)
    found = load_checkpoint(tmp_path / "a.pth").state_dict
    assert all(same(found[k], v) for k, v in state.items())
    assert found.entries["channel"].dtype == torch.qint8


def test_a_tensor_may_be_changed_and_the_file_is_not(tmp_path):
    torch.save({"w": torch.ones(1000)}, tmp_path / "a.pth")
    before = (tmp_path / "a.pth").read_bytes()
    load_checkpoint(tmp_path / "a.pth").state_dict["w"].zero_()
    assert (tmp_path / "a.pth").read_bytes() == before
    assert load_checkpoint(tmp_path / "a.pth").state_dict["w"].sum() == 1000


def test_tied_tensors_are_known_without_reading_them(tmp_path):
    w = torch.randn(3, 3)
    torch.save({"a": w, "b": w, "c": w.clone()}, tmp_path / "a.pth")
    entries = load_checkpoint(tmp_path / "a.pth").state_dict.entries
    assert entries["a"].memory == entries["b"].memory != entries["c"].memory


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))
        self.head = torch.nn.Linear(4, 2)
        self.register_buffer("grid", torch.arange(4.0), persistent=False)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


@BOTH
@pytest.mark.filterwarnings("ignore:Couldn't retrieve source code")
def test_a_whole_module_gives_its_state_dict_without_its_code(tmp_path, new):
    net = Net()
    torch.save(net, tmp_path / "net.pth", _use_new_zipfile_serialization=new)
    found = load_checkpoint(tmp_path / "net.pth")
    assert found.kind == "whole module"
    assert found.object is None
    assert any("Net" in name for name in found.wanted)
    expected = net.state_dict()
    assert list(found.state_dict) == list(expected)
    assert all(same(found.state_dict[k], v) for k, v in expected.items())
    Net().load_state_dict(found.state_dict, strict=True)


@pytest.mark.filterwarnings("ignore:.*is deprecated")
def test_torchscript(tmp_path):
    net = Net().eval()
    torch.jit.trace(net, torch.randn(1, 3, 8, 8)).save(tmp_path / "net.jit")
    found = load_checkpoint(tmp_path / "net.jit")
    assert (found.kind, found.format) == ("TorchScript", "TorchScript")
    expected = torch.jit.load(tmp_path / "net.jit").state_dict()
    assert all(same(found.state_dict[k], v) for k, v in expected.items())


def sets():
    net = Net()
    state, other = net.state_dict(), Net().state_dict()
    optimizer = torch.optim.Adam(net.parameters())
    net(torch.randn(2, 3, 8, 8)).sum().backward()
    optimizer.step()
    return net, state, other, optimizer.state_dict()


def wrapped(name):
    net, state, other, optimizer = sets()
    return {
        "state_dict": {
            "epoch": 3,
            "best_acc": torch.tensor(0.7),
            "state_dict": state,
            "optimizer": optimizer,
        },
        "model": {"model": state, "optimizer_state_dict": optimizer, "step": 5},
        "twice": {"checkpoint": {"model_state_dict": state}, "args": {"lr": 0.1}},
        "ema beside": {"model": state, "ema": other, "optimizer": optimizer},
        "ema deep": {"ema": {"module": other, "decay": 0.99}, "net": state},
        "module inside": {"epoch": 1, "model": net, "optimizer": None},
        "lightning": {
            "pytorch-lightning_version": "2.1.0",
            "state_dict": state,
            "optimizer_states": [optimizer],
            "lr_schedulers": [],
            "callbacks": {},
        },
        "mmengine": {"meta": {"mmengine_version": "0.10", "epoch": 2}, "state_dict": state},
        "params_ema": {"params_ema": state, "params": state},
    }[name], state


WRAPPED = {
    "state_dict": "training checkpoint",
    "model": "training checkpoint",
    "twice": "training checkpoint",
    "ema beside": "training checkpoint",
    "ema deep": "training checkpoint",
    "module inside": "training checkpoint",
    "lightning": "Lightning checkpoint",
    "mmengine": "MMEngine checkpoint",
    "params_ema": "training checkpoint",
}


@pytest.mark.parametrize("name", WRAPPED)
def test_training_checkpoints(tmp_path, name):
    saved, state = wrapped(name)
    torch.save(saved, tmp_path / "a.pth")
    found = load_checkpoint(tmp_path / "a.pth")
    assert found.kind == WRAPPED[name]
    assert list(found.state_dict) == list(state)
    assert all(same(found.state_dict[k], v) for k, v in state.items())
    if "ema" in name and name != "params_ema":
        assert len(found.parts) == 1
        assert "ema" in next(iter(found.parts))
    if saved.get("optimizer"):
        assert "tensors" in found.extras["optimizer"]


def test_an_optimizer_alone_is_no_network(tmp_path):
    torch.save({"optimizer": sets()[3]}, tmp_path / "a.pth")
    with pytest.raises(MigrateError, match="only the state of an optimizer"):
        load_checkpoint(tmp_path / "a.pth")


def test_a_plain_pickle_of_a_state_dict(tmp_path):
    state = Net().state_dict()
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(state))
    found = load_checkpoint(tmp_path / "a.pkl")
    assert found.format == "pickle"
    assert all(same(found.state_dict[k], v) for k, v in state.items())


@pytest.mark.parametrize("protocol", range(2, 6))
def test_arrays_in_pickles(tmp_path, protocol):
    arrays = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3),
        "b": {"c": np.asfortranarray(np.arange(6.0).reshape(2, 3)), "d": np.array(3, np.int64)},
        "big": np.arange(4, dtype=">f4"),
    }
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(arrays, protocol))
    found = load_checkpoint(tmp_path / "a.pkl").state_dict
    assert found["a"].tolist() == arrays["a"].tolist()
    assert load_checkpoint(tmp_path / "a.pkl").parts["b"]["c"].tolist() == arrays["b"]["c"].tolist()
    assert found["big"].tolist() == [0, 1, 2, 3]


def test_numpy_files(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {
        "w": rng.standard_normal((3, 4)).astype("f4"),
        "f": np.asfortranarray(rng.standard_normal((3, 4))),
        "h": np.arange(3, dtype=">f2"),
        "n": np.array(3),
    }
    for save, name in ((np.savez, "a.npz"), (np.savez_compressed, "b.npz")):
        save(tmp_path / name, text=np.array(["x"]), **arrays)
        found = load_checkpoint(tmp_path / name)
        assert found.format == "npz"
        assert all(found.state_dict[k].tolist() == v.tolist() for k, v in arrays.items())
        assert [f.level for f in found.findings] == ["warning"]
    np.save(tmp_path / "a.npy", arrays["f"])
    assert load_checkpoint(tmp_path / "a.npy").state_dict["array"].tolist() == arrays["f"].tolist()
    np.save(
        tmp_path / "d.npy", {"conv1": {"weights": arrays["w"]}, "prob": {"biases": arrays["f"]}}
    )
    found = load_checkpoint(tmp_path / "d.npy")
    assert list(found.state_dict) == ["conv1.weights", "prob.biases"]
    assert found.state_dict["prob.biases"].tolist() == arrays["f"].tolist()


@pytest.mark.parametrize("form", FORMATS)
def test_what_is_written_is_what_was_read(tmp_path, form):
    torch.manual_seed(0)
    w = torch.randn(5, 3)
    state = {
        "w": w,
        "t": w.t(),
        "s": torch.tensor(1.5),
        "n": torch.arange(3),
        "e": torch.zeros(0, 2),
    }
    if form == "mindspore":
        del state["e"]  # MindSpore refuses a tensor without values
    out = write_state_dict(state, tmp_path / "a", form)
    found = load_checkpoint(out).state_dict
    assert sorted(found) == sorted(state)
    assert all(same(found[k], v) for k, v in state.items())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a"]


def test_safetensors_are_what_its_library_reads(tmp_path):
    from safetensors.torch import load_file

    state = {k: v for k, v in kinds().items() if v.dtype != torch.complex64}
    write_state_dict(state, tmp_path / "a.safetensors")
    read = load_file(tmp_path / "a.safetensors")
    assert all(same(read[k], v) for k, v in state.items())


def test_legacy_files_are_what_torch_reads(tmp_path):
    # Of complex numbers and of newer dtypes old torch has no storage.
    new = (torch.complex64, torch.uint16, torch.float8_e4m3fn, torch.float8_e5m2)
    state = {k: v for k, v in kinds().items() if v.dtype not in new}
    assert len(state) > 5
    write_state_dict(state, tmp_path / "a.pth", "torch-legacy")
    assert (tmp_path / "a.pth").read_bytes()[:4] == b"\x80\x02\x8a\x0a"
    read = torch.load(tmp_path / "a.pth", weights_only=True)
    assert all(same(read[k], v) for k, v in state.items())


@pytest.mark.filterwarnings("ignore:.*deprecated:UserWarning")
def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    out = write_state_dict({"w": torch.ones(2)}, tmp_path / "a.safetensors")
    before = out.read_bytes()
    quantized = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)
    with pytest.raises(MigrateError, match="has no qint8"):
        write_state_dict({"w": quantized}, out)
    assert out.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a.safetensors"]


def test_trust_runs_the_code_and_says_so(tmp_path):
    torch.save(
        {"args": argparse.Namespace(lr=0.1), "model": {"w": torch.ones(2)}}, tmp_path / "a.pth"
    )
    found = load_checkpoint(tmp_path / "a.pth")
    assert found.wanted == ["argparse.Namespace"]
    assert found.object is None
    found = load_checkpoint(tmp_path / "a.pth", trust=True)
    assert found.object["args"].lr == 0.1
    assert "its code was run" in found.findings[-1].what
    # Nothing in the list says that it was not, or to say trust=True again.
    said = " ".join(f"{f.what} {f.fix}" for f in found.findings)
    assert "none of it was run" not in said
    assert said.count("trust=True") == 1


def test_trust_takes_back_that_a_module_was_read_without_its_code(tmp_path):
    torch.save(torch.nn.Linear(2, 2), tmp_path / "a.pth")
    before = " ".join(f.what for f in load_checkpoint(tmp_path / "a.pth").findings)
    assert "without its code" in before
    after = " ".join(f.what for f in load_checkpoint(tmp_path / "a.pth", trust=True).findings)
    assert "the whole module" in after
    assert "without its code" not in after


def test_a_single_value_is_said(tmp_path):
    saved = {"state_dict": {"w": torch.ones(2)}, "best": torch.tensor(71.25), "n": torch.tensor(7)}
    torch.save(saved, tmp_path / "a.pth")
    assert load_checkpoint(tmp_path / "a.pth").extras == {"best": "71.25", "n": "7"}


def test_trust_runs_a_bare_pickle_too(tmp_path):
    saved = {"args": argparse.Namespace(lr=0.1), "w": torch.ones(2)}
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(saved))
    assert load_checkpoint(tmp_path / "a.pkl").object is None
    assert load_checkpoint(tmp_path / "a.pkl", trust=True).object["args"].lr == 0.1


class Fails:
    """Its pickle fails without a word."""

    def __reduce__(self):
        return fail, ()


def fail():
    raise ValueError


@pytest.mark.parametrize(
    "save", [torch.save, lambda saved, path: path.write_bytes(pickle.dumps(saved))]
)
def test_code_that_fails_is_one_clear_error(tmp_path, save):
    save({"w": torch.ones(2), "x": Fails()}, tmp_path / "a.pth")
    assert load_checkpoint(tmp_path / "a.pth").state_dict["w"].sum() == 2
    with pytest.raises(MigrateError, match="its code fails here: ValueError") as caught:
        load_checkpoint(tmp_path / "a.pth", trust=True)
    assert "Fails" not in caught.value.what
    assert "fail" in caught.value.fix


def test_shards(tmp_path):
    import json

    state = Net().state_dict()
    names = list(state)
    places = {n: ("one.safetensors" if i % 2 else "two.bin") for i, n in enumerate(names)}
    write_state_dict(
        {n: state[n] for n in names if "one" in places[n]}, tmp_path / "one.safetensors"
    )
    torch.save({n: state[n] for n in names if "two" in places[n]}, tmp_path / "two.bin")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}))
    for path in (index, tmp_path):
        found = load_checkpoint(path)
        assert found.format.startswith("sharded")
        assert list(found.state_dict) == names
        assert all(same(found.state_dict[k], v) for k, v in state.items())
    (tmp_path / "two.bin").rename(tmp_path / "elsewhere")
    with pytest.raises(MigrateError, match=r"1 of 2 shards are missing: two\.bin"):
        load_checkpoint(index)
    index.write_text(json.dumps({"weight_map": {"w": "../../etc/passwd"}}))
    with pytest.raises(MigrateError, match="not in its folder"):
        load_checkpoint(index)


def test_what_is_wrong_is_said(tmp_path):
    torch.save(kinds(), tmp_path / "a.pth")
    whole = (tmp_path / "a.pth").read_bytes()
    (tmp_path / "half.pth").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(MigrateError, match="does not end as one"):
        load_checkpoint(tmp_path / "half.pth")
    (tmp_path / "empty.pth").write_bytes(b"")
    with pytest.raises(MigrateError, match="is empty"):
        load_checkpoint(tmp_path / "empty.pth")
    with pytest.raises(MigrateError, match="No such file"):
        load_checkpoint(tmp_path / "absent.pth")
    with zipfile.ZipFile(tmp_path / "around.zip", "w") as archive:
        archive.write(tmp_path / "a.pth", "weights/a.pth")
    with pytest.raises(MigrateError, match="a zip archive around a checkpoint"):
        load_checkpoint(tmp_path / "around.zip")
    with (
        zipfile.ZipFile(tmp_path / "a.pth") as old,
        zipfile.ZipFile(tmp_path / "b.pth", "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            new.writestr(name, old.read(name))
    with pytest.raises(MigrateError, match="is compressed"):
        load_checkpoint(tmp_path / "b.pth")
    torch.save({"epoch": 3}, tmp_path / "c.pth")
    with pytest.raises(MigrateError, match="no tensors of a network"):
        load_checkpoint(tmp_path / "c.pth")
