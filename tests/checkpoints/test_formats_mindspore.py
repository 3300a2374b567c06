"""MindSpore's .ckpt, against Google's protobuf."""

import io
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch

from migrate_kit.checkpoints.formats import mindspore_ckpt, mindspore_writer
from migrate_kit.checkpoints.formats.source import Source
from migrate_kit.checkpoints.state import Entry, StateDict
from migrate_kit.errors import MigrateError
from tests.checkpoints.bases import add_ckpt, in_memory
from tests.checkpoints.schemas import mindspore

NUMPY = {
    "Bool": "?", "Int8": "i1", "Int16": "i2", "Int32": "i4", "Int64": "i8", "UInt8": "u1",
    "UInt16": "u2", "UInt32": "u4", "UInt64": "u8", "Float16": "f2", "Float32": "f4",
    "Float64": "f8", "Complex64": "c8", "Complex128": "c16",
}  # fmt: skip


def of(content):
    return Source.of_bytes(Path("a.ckpt"), bytes(content))


def read(file):
    source = of(file if isinstance(file, bytes) else file.SerializeToString())
    assert mindspore_ckpt.recognises(source)
    return mindspore_ckpt.read(source)


def parsed(content):
    file = mindspore.Checkpoint()
    file.ParseFromString(content)
    return file


def test_a_real_checkpoint_apart_from_its_optimizer(cases):
    content = (cases / "mindspore/checkpoint_lenet-10_1875.ckpt").read_bytes()
    expected = {
        value.tag: np.frombuffer(value.tensor.tensor_content, NUMPY[value.tensor.tensor_type])
        for value in parsed(content).value
    }
    found = read(content)
    optimizer = found.parts["optimizer"]
    layers = ("conv1", "conv2", "fc1", "fc2", "fc3")
    assert {name.partition(".")[0] for name in found.state_dict} == set(layers)
    moments = {f"moments.{name}" for name in found.state_dict}
    assert set(optimizer) == moments | {"learning_rate", "momentum"}
    assert len(found.state_dict) + len(optimizer) == len(expected) == 18
    for name, tensor in {**found.state_dict, **optimizer}.items():
        assert np.array_equal(tensor.numpy().ravel(), expected[name])
    assert found.kind == "training checkpoint"
    assert found.extras["learning_rate"] == "0.001"
    assert optimizer["momentum"].shape == ()
    assert found.extras["optimizer"].startswith("10 tensors: learning_rate, momentum, moments.")


def test_a_real_checkpoint_is_written_as_mindspore_wrote_it(cases):
    content = (cases / "mindspore/checkpoint_lenet-10_1875.ckpt").read_bytes()
    found = read(content)
    everything = {**found.state_dict, **found.parts["optimizer"]}
    # This old version wrote the shape of a scalar as [0]; the one here writes none, as 2.10 does.
    old = parsed(content)
    for value in old.value:
        if value.tensor.dims == [0]:
            del value.tensor.dims[:]
    order = [value.tag for value in old.value]
    written = in_memory(mindspore_ckpt.write, {name: everything[name] for name in order})
    assert written == old.SerializeToString()


@pytest.mark.parametrize("kind", NUMPY)
def test_every_dtype(kind):
    values = np.arange(6).reshape(2, 3).astype(NUMPY[kind])
    file = mindspore.Checkpoint()
    add_ckpt(file, "a", (2, 3), kind, values.tobytes())
    tensor = read(file).state_dict["a"]
    assert tensor.dtype == torch.from_numpy(values).dtype
    assert np.array_equal(tensor.numpy(), values)
    if "Complex" in kind:
        with pytest.raises(MigrateError, match="MindSpore cannot read a tensor of"):
            mindspore_ckpt.write({"a": tensor}, io.BytesIO())
    else:
        assert in_memory(mindspore_ckpt.write, {"a": tensor}) == file.SerializeToString()


def test_bfloat16_is_its_two_bytes():
    values = torch.tensor([1.0, -2.5, 3e38]).bfloat16()
    content = in_memory(mindspore_ckpt.write, {"a": values})
    value = parsed(content).value[0].tensor
    assert value.tensor_type == "BFloat16"
    assert value.tensor_content == values.view(torch.int16).numpy().tobytes()
    assert torch.equal(read(content).state_dict["a"], values)


@pytest.mark.parametrize("dims", [(), (0,)], ids=["none", "zero"])
def test_a_scalar_has_no_dims_or_a_zero(dims):
    file = mindspore.Checkpoint()
    add_ckpt(file, "a", dims, "Float32", np.float32(2.5).tobytes())
    assert torch.equal(read(file).state_dict["a"], torch.tensor(2.5))


def test_what_is_long_is_written_in_slices_and_read_as_one(monkeypatch):
    state = {"a": torch.arange(10.0), "b": torch.arange(3).short(), "c": torch.tensor(1.5)}
    whole = in_memory(mindspore_ckpt.write, state)
    monkeypatch.setattr(mindspore_writer, "_SLICE", 16)
    sliced = in_memory(mindspore_ckpt.write, state)
    values = parsed(sliced).value
    assert [value.tag for value in values] == ["a", "a", "a", "b", "c"]
    assert [len(value.tensor.tensor_content) for value in values] == [16, 16, 8, 6, 4]
    assert all(value.tensor.dims == [10] for value in values[:3])
    assert sliced != whole
    assert all(torch.equal(read(sliced).state_dict[k], v) for k, v in state.items())


def test_an_empty_tensor_in_two_slices():
    file = mindspore.Checkpoint()
    for _ in range(2):
        add_ckpt(file, "a", (0, 3), "Float32", b"")
    assert read(file).state_dict["a"].shape == (0, 3)


def test_texts_and_what_pytorch_lacks():
    file = mindspore.Checkpoint()
    add_ckpt(file, "name", (0,), "str", "naïve\N{GRINNING FACE}".encode("utf-32-le"))
    add_ckpt(file, "packed", (8,), "Int4", b"1234")
    add_ckpt(file, "a", (1,), "Int8", b"\1")
    table = file.value.add(tag="table").maptensor.tensor.add()
    table.tensor_type, table.tensor_content = "float32", b""
    found = read(file)
    assert found.extras == {"name": "naïve\N{GRINNING FACE}"}
    assert list(found.state_dict) == ["a"]
    assert [f.what for f in found.findings] == [
        "2 tensors left out, PyTorch has no dtype for Int4, MapParameter: packed, table"
    ]


def test_the_checksum_is_mindspores_and_is_compared():
    state = {"a": torch.arange(4.0)}
    plain = in_memory(mindspore_ckpt.write, state)
    content = io.BytesIO()
    mindspore_ckpt.write(state, content, crc_check=True)
    # train/serialization.py: 'crc_num' and crc32 of all before it, ten bytes, big endian.
    assert content.getvalue() == plain + b"crc_num" + zlib.crc32(plain).to_bytes(10, "big")
    assert read(content.getvalue()).findings == []
    damaged = content.getvalue().replace(b"\x00\x00\x80\x3f", b"\x00\x00\x80\x40")
    assert [f.level for f in read(damaged).findings] == ["error"]


def entry(tag, dims, kind, content):
    file = mindspore.Checkpoint()
    add_ckpt(file, tag, dims, kind, content)
    return file.SerializeToString()


A = entry("a", (2,), "Float32", b"12345678")
DAMAGED = {
    "too few bytes": entry("a", (2,), "Float32", b"1234"),
    "too many bytes": entry("a", (2,), "Float32", b"123456789012"),
    "the same name twice": A + A,
    "the same name later": A + entry("b", (1,), "Int8", b"1") + A,
    "two shapes of one name": entry("a", (4,), "Int8", b"12") + entry("a", (3,), "Int8", b"34"),
    "a negative length": entry("a", (-2,), "Float32", b"12345678"),
    "lengths that overflow": entry("a", (1 << 62, 4), "Float32", b""),
    "many dims": entry("a", (1,) * 70, "Int8", b"1"),
    "no name": entry("", (2,), "Float32", b"12345678"),
    "a name that is no text": A.replace(b"\x01a", b"\x01\xff"),
    "cut": A[:-1],
    "something behind": A + b"\x12\x01a",
    "a group": A + b"\x0b",
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_said(name):
    with pytest.raises(MigrateError, match="damaged"):
        mindspore_ckpt.read(of(DAMAGED[name]))


@pytest.mark.parametrize(
    ("names", "state"),
    [
        (["fc.w", "moments.fc.w", "adam_v.fc.w", "stat.fc.w"], 3),
        (["stat.mean", "accum.weight", "momentum.w"], 0),
        (["fc.w", "learning_rate", "epoch_num", "scale_sense", "current_iterator_step"], 4),
    ],
)
def test_an_optimizers_names_belong_to_weights(names, state):
    assert mindspore_ckpt.optimizer_names(names) == names[len(names) - state :]


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(0, 3),
        torch.zeros(2, dtype=torch.complex64),
        torch.zeros(2).to_sparse(),
        torch.zeros(2, device="meta"),
    ],
    ids=["empty", "complex", "sparse", "meta"],
)
def test_what_mindspore_could_not_read_is_not_written(tensor, tmp_path):
    with pytest.raises(MigrateError, match="MindSpore cannot read"):
        mindspore_ckpt.write({"a": torch.ones(1), "b": tensor}, tmp_path / "a.ckpt")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_leaves_the_old_file_whole(tmp_path):
    def stop():
        raise KeyboardInterrupt

    path = tmp_path / "a.ckpt"
    mindspore_ckpt.write({"a": torch.ones(2)}, path)
    before = path.read_bytes()
    state = {"b": Entry((2,), torch.float32, lambda: torch.ones(2))}
    state["c"] = Entry((2,), torch.float32, stop)
    with pytest.raises(KeyboardInterrupt):
        mindspore_ckpt.write(StateDict(state), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_one_tensor_at_a_time_is_in_memory():
    alive, most = [0], [0]

    class Counted(np.ndarray):
        def __del__(self):
            alive[0] -= 1

    def make():
        alive[0] += 1
        most[0] = max(most[0], alive[0])
        return torch.from_numpy(np.zeros(1000, "f4").view(Counted))

    state = {f"{n}": Entry((1000,), torch.float32, make) for n in range(5)}
    mindspore_ckpt.write(StateDict(state), io.BytesIO())
    assert most == [1]


def test_transposed_and_tied_tensors_are_written_whole():
    base = torch.arange(6.0).reshape(2, 3)
    content = in_memory(mindspore_ckpt.write, {"a": base.t(), "b": base, "c": base[:, ::2]})
    found = read(content).state_dict
    assert torch.equal(found["a"], base.t())
    assert torch.equal(found["b"], base)
    assert torch.equal(found["c"], base[:, ::2])
