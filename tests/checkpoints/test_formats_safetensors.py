"""safetensors files, against the safetensors library."""

import json
import time
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from migrate_kit.checkpoints.formats import safetensors_file
from migrate_kit.checkpoints.formats.source import Source
from migrate_kit.errors import MigrateError

DTYPES = [
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32,
    torch.int16, torch.int8, torch.uint64, torch.uint32, torch.uint16, torch.uint8, torch.bool,
    torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz, torch.float8_e8m0fnu,
]  # fmt: skip


def read(path):
    source = Source(path)
    assert safetensors_file.recognises(source)
    return safetensors_file.read(source)


def library(path):
    with safe_open(path, "pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118


def bits(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).tolist()


def test_every_dtype_is_what_the_library_reads(tmp_path):
    torch.manual_seed(0)
    state = {str(d): (torch.randn(3, 5) * 3).abs().to(d) for d in DTYPES}
    state |= {"scalar": torch.tensor(2.5), "empty": torch.zeros(0, 3), "": torch.ones(1)}
    save_file(state, tmp_path / "a.safetensors", {"format": "pt", "by": "a test"})
    found = read(tmp_path / "a.safetensors")
    expected, metadata = library(tmp_path / "a.safetensors")
    assert set(found.state_dict) == set(expected) == set(state)
    for name, tensor in found.state_dict.items():
        assert (tensor.dtype, tensor.shape) == (expected[name].dtype, expected[name].shape)
        assert bits(tensor) == bits(expected[name])
    assert found.extras == metadata
    assert (found.format, found.kind, found.findings) == ("safetensors", "weights", [])


def test_a_real_file(cases):
    path = cases / "checkpoints/silero_vad_16k.safetensors"
    found, (expected, _) = read(path), library(path)
    assert len(found.state_dict) == len(expected) == 15
    assert all(torch.equal(found.state_dict[k], v) for k, v in expected.items())


def write(path, header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    size = len(text) if length is None else length
    path.write_bytes(size.to_bytes(8, "little") + text + data)
    return path


def tensor(begin, end, shape, dtype="U8"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


FOUR = tensor(0, 4, [4])
HEADERS = {
    "sound": ({"a": FOUR, "b": tensor(4, 8, [4])}, b"12345678"),
    "padded": (b'{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}   ', b"1234"),
    "nothing": ({}, b""),
    "no value": ({"a": tensor(0, 0, [2, 0, 3])}, b""),
    "a hole": ({"a": FOUR, "b": tensor(5, 9, [4])}, b"123456789"),
    "an overlap": ({"a": FOUR, "b": tensor(2, 6, [4])}, b"123456"),
    "the same bytes": ({"a": FOUR, "b": FOUR}, b"1234"),
    "out of the file": ({"a": FOUR}, b"123"),
    "bytes behind": ({"a": FOUR}, b"12345"),
    "a wrong size": ({"a": tensor(0, 4, [5])}, b"1234"),
    "backwards": ({"a": tensor(4, 0, [4])}, b"1234"),
    "negative": ({"a": tensor(-4, 0, [4])}, b"1234"),
    "a negative length": ({"a": tensor(0, 4, [-4])}, b"1234"),
    "a huge shape": ({"a": tensor(0, 4, [1 << 40, 1 << 40])}, b"1234"),
    "a shape that overflows to 4": ({"a": tensor(0, 4, [1 << 62, 4, 4])}, b"1234"),
    "a fraction": ({"a": tensor(0, 4, [4.0])}, b"1234"),
    "a truth as length": ({"a": tensor(0, 1, [True])}, b"1"),
    "an unknown dtype": ({"a": tensor(0, 4, [4], "X8")}, b"1234"),
    "no dtype": ({"a": {"shape": [4], "data_offsets": [0, 4]}}, b"1234"),
    "a number for a tensor": ({"a": 3}, b""),
    "a list": ([1], b""),
    "metadata that are numbers": ({"__metadata__": {"a": 1}}, b""),
    "no JSON": (b'{"a":', b""),
    "no text": (b'{"\xff":3}', b""),
    "a lone surrogate": (b'{"\\ud800":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}', b"1234"),
    "deep": (b'{"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}", b""),
}


@pytest.mark.parametrize("name", HEADERS)
def test_what_the_library_refuses_is_refused(name, tmp_path):
    path = write(tmp_path / "a.safetensors", *HEADERS[name])
    try:
        expected, _ = library(path)
    except (SafetensorError, RuntimeError):
        expected = None
    source = Source(path)
    if expected is None:
        with pytest.raises(MigrateError, match="damaged"):
            safetensors_file.read(source)
    else:
        found = safetensors_file.read(source).state_dict
        assert {k: bits(v) for k, v in found.items()} == {k: bits(v) for k, v in expected.items()}
    assert (expected is not None) == (name in ("sound", "padded", "nothing", "no value"))


def test_a_name_that_is_there_twice_is_refused(tmp_path):
    one = b'"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}'
    path = write(tmp_path / "a.safetensors", b"{" + one + b"," + one + b"}", b"1234")
    with pytest.raises(MigrateError, match="'a' is there twice"):
        read(path)


@pytest.mark.parametrize(
    ("header", "length", "said"),
    [
        (b"{}", 99_999_999, "ends at"),
        (b"{}", 100_000_001, "the header would have 100,000,001 bytes"),
        (b'{"a":[' + b"[]," * 3_000_001 + b"0]}", None, "too many brackets"),
    ],
    ids=["cut", "long", "brackets"],
)
def test_a_header_is_bounded(tmp_path, header, length, said):
    source = Source(write(tmp_path / "a.safetensors", header, length=length))
    began = time.perf_counter()
    with pytest.raises(MigrateError, match=said):
        safetensors_file.read(source)
    assert time.perf_counter() - began < 1


def test_four_gigabytes_are_listed_and_mapped_without_being_read(tmp_path):
    size = 4 << 30
    path = tmp_path / "a.safetensors"
    text = json.dumps({"a": tensor(0, size, [size // 4], "F32")}).encode()
    write(path, text + b" " * (-len(text) % 8))  # aligned, as the library writes it
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + size)  # a hole on the disk
    began = time.perf_counter()
    value = read(path).state_dict["a"]
    assert time.perf_counter() - began < 1
    assert value.shape == (1 << 30,)
    assert value[-1] == 0


def test_a_changed_tensor_does_not_change_the_file(tmp_path):
    save_file({"a": torch.zeros(4)}, tmp_path / "a.safetensors")
    before = (tmp_path / "a.safetensors").read_bytes()
    found = read(tmp_path / "a.safetensors").state_dict
    found["a"].fill_(1)
    assert (tmp_path / "a.safetensors").read_bytes() == before


def test_smaller_than_a_byte_is_left_out_and_said(tmp_path):
    header = {"w": tensor(0, 4, [8], "F4"), "b": tensor(4, 8, [4])}
    found = read(write(tmp_path / "a.safetensors", header, b"12345678"))
    assert list(found.state_dict) == ["b"]
    assert "no dtype for F4: w" in found.findings[0].what


@pytest.mark.parametrize(
    "content",
    [b'\x08\0\0\0\0\0\0\0{"a":1', b"{}", b"\x02\0\0\0\0\0\0\0[]", b"\x02\0\0\0\0\0\0\x80{}"],
)
def test_what_is_cut_or_something_else(content):
    source = Source.of_bytes(Path("x"), content)
    assert safetensors_file.recognises(source) == content.startswith(b"\x08")
    with pytest.raises(MigrateError):
        safetensors_file.read(source)
