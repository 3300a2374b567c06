"""NumPy's files: .npz, .npy, and the .npy that is a dictionary of arrays."""

from __future__ import annotations

import ast
import math
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from migrate_kit.checkpoints.formats import pickle_file
from migrate_kit.checkpoints.formats.numpy_objects import entry_of_array
from migrate_kit.checkpoints.formats.zip_members import first_member, members, place, unpack
from migrate_kit.checkpoints.state import Contents, Entry, StateDict
from migrate_kit.errors import MigrateError
from migrate_kit.results import Finding, few

if TYPE_CHECKING:
    import torch

    from migrate_kit.checkpoints.formats.source import Source

_MAGIC = b"\x93NUMPY"
_MOST_HEADER = 1 << 16


def recognises(source: Source) -> bool:
    """Whether it is an .npy, or a zip archive whose first member is one."""
    return source.head(6) == _MAGIC or first_member(source).endswith(b".npy")


def read(source: Source) -> Contents:
    """List the arrays; those of a compressed archive are unpacked when they are asked for."""
    if source.head(6) == _MAGIC:
        return _read_npy(source)
    return _read_npz(source)


def _read_npy(source: Source) -> Contents:
    header = _header(source, 0, source.size, "the array")
    if header.dtype.hasobject:
        return pickle_file.read_part(source, header.length, "npy")
    entry = _entry(source, "array", header, header.length)
    if entry is None:
        raise MigrateError(
            f"an array of {header.dtype}, which PyTorch has no dtype for",
            str(source.path),
            "convert it to a number type with NumPy and save it again",
        )
    return Contents("npy", "tensor", StateDict({"array": entry}))


def _read_npz(source: Source) -> Contents:
    entries: dict[str, Entry] = {}
    left: list[str] = []
    for file, info in members(source).items():
        name = file.removesuffix(".npy")
        entry = _stored(source, name, info)
        if entry is None:
            left.append(name)
        else:
            entries[name] = entry
    findings = []
    if left:
        what = f"{few(left)}: not arrays of numbers, left out"
        findings.append(Finding("warning", what, source.path.name, "load them with NumPy"))
    return Contents("npz", "weights", StateDict(entries), findings=findings)


def _stored(source: Source, name: str, info: zipfile.ZipInfo) -> Entry | None:
    if info.compress_type != zipfile.ZIP_STORED:
        return _packed(source, name, info)
    start, length = place(source, info)
    header = _header(source, start, start + length, name)
    return _entry(source, name, header, start + header.length)


def _packed(source: Source, name: str, info: zipfile.ZipInfo) -> Entry | None:
    header = _parsed(source, unpack(source, info, _MOST_HEADER), name)
    dtype = header.torch_dtype
    if dtype is None:
        return None
    length = header.length + source.checked_count(header.shape, name) * header.dtype.itemsize
    # A bomb claims more than its bytes can hold: deflate shrinks by 1032 at most (zlib's manual).
    if length > max(info.compress_size, 1) * 1100 + _MOST_HEADER:
        raise source.damaged(f"{name} would unpack to {length:,} bytes")

    def read_packed() -> torch.Tensor:
        data = unpack(source, info, length)
        if len(data) < length:
            raise source.damaged(f"{name} unpacks to fewer bytes than its shape needs")
        return _read(header.array(data, header.length))

    return Entry(header.shape, dtype, read_packed)


def _read(array: np.ndarray[Any, Any]) -> torch.Tensor:
    entry = entry_of_array(array)
    if entry is None:
        raise TypeError(f"no torch dtype for {array.dtype}")
    return entry.read()


@dataclass(frozen=True)
class _Header:
    """What an .npy says of its array; ``length`` is that of the header."""

    dtype: np.dtype[Any]
    fortran: bool
    shape: tuple[int, ...]
    length: int

    def array(self, values: Any, offset: int = 0) -> np.ndarray[Any, Any]:
        """Return the array in a buffer of its values."""
        count = math.prod(self.shape)
        flat: np.ndarray[Any, Any] = np.frombuffer(values, self.dtype, count, offset)
        return flat.reshape(self.shape, order="F" if self.fortran else "C")

    @property
    def torch_dtype(self) -> torch.dtype | None:
        """PyTorch's dtype, if it has one."""
        entry = None if self.dtype.hasobject else entry_of_array(np.empty(0, self.dtype))
        return None if entry is None else entry.dtype


def _header(source: Source, start: int, end: int, name: str) -> _Header:
    head = source.bytes(start, min(end - start, _MOST_HEADER), f"the header of {name}")
    return _parsed(source, head, name)


def _parsed(source: Source, head: bytes, name: str) -> _Header:
    """Read a header: magic, version, length, and a Python literal (NEP 1)."""
    wide = len(head) > 6 and head[6] >= 2
    begin = 12 if wide else 10
    length = int.from_bytes(head[8:begin], "little")
    text = head[begin : begin + length]
    try:
        if head[:6] != _MAGIC or len(text) < length:
            raise ValueError("no header")
        parsed = ast.literal_eval(text.decode("latin1").strip())
        dtype, fortran, shape = np.dtype(parsed["descr"]), parsed["fortran_order"], parsed["shape"]
        if not isinstance(shape, tuple) or not all(isinstance(n, int) for n in shape):
            raise TypeError("no shape")
    except (ValueError, TypeError, SyntaxError, LookupError, MemoryError, RecursionError) as error:
        raise source.damaged(f"{name[:80]} has no sound header") from error
    return _Header(dtype, bool(fortran), shape, begin + length)


def _entry(source: Source, name: str, header: _Header, start: int) -> Entry | None:
    """Return the entry of an array whose values lie in the file."""
    dtype, shape = header.torch_dtype, header.shape
    if dtype is None:
        return None
    count = source.checked_count(shape, name)
    view = source.view(start, count * header.dtype.itemsize, name)
    if not header.fortran and header.dtype.isnative:
        return source.entry(dtype, shape, start, name)
    return Entry(shape, dtype, lambda: _read(header.array(view)))
