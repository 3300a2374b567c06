"""Write MindSpore's .ckpt without MindSpore, tensor by tensor."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

import torch

from migrate_kit.checkpoints.state import StateDict
from migrate_kit.checkpoints.write import raw
from migrate_kit.errors import MigrateError
from migrate_kit.files import replacing
from migrate_kit.results import plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# MindSpore's names (train/serialization.py, tensor_to_ms_type) and PyTorch's.
DTYPES: Final = {
    "Bool": "bool",
    "Int8": "int8",
    "Int16": "int16",
    "Int32": "int32",
    "Int64": "int64",
    "UInt8": "uint8",
    "UInt16": "uint16",
    "UInt32": "uint32",
    "UInt64": "uint64",
    "Float16": "float16",
    "BFloat16": "bfloat16",
    "Float32": "float32",
    "Float64": "float64",
    "Complex64": "complex64",
    "Complex128": "complex128",
}
CRC: Final = b"crc_num"
# MindSpore cannot read these back (measured with 2.10), though it writes them.
_UNREADABLE: Final = ("Complex64", "Complex128")
_NAMES: Final = {f"torch.{own}": t for t, own in DTYPES.items() if t not in _UNREADABLE}
# As MindSpore's own: what is longer becomes several entries of one name.
_SLICE: Final = 512 << 20


def write(
    state: Mapping[str, torch.Tensor],
    out: BinaryIO | str | os.PathLike[str],
    *,
    crc_check: bool = False,
) -> None:
    r"""Write tensors as a .ckpt that MindSpore loads.

    Parameters
    ----------
    state : mapping of str to Tensor
        A StateDict reads each tensor when its turn comes, so that one at a time is in memory.
    out : path or binary file
        What is at a path is replaced when all is written.
    crc_check : bool
        Whether to add the checksum that ``mindspore.load_checkpoint(crc_check=True)`` compares.

    Raises
    ------
    MigrateError
        If MindSpore could not read a tensor, or the file cannot be written.

    Examples
    --------
    >>> import io
    >>> file = io.BytesIO()
    >>> write({"w": torch.ones(2)}, file)
    >>> file.getvalue()
    b'\n\x1a\n\x01w\x12\x15\x08\x02\x12\x07Float32\x1a\x08\x00\x00\x80?\x00\x00\x80?'
    """
    if isinstance(out, str | os.PathLike):
        with replacing(Path(out)) as file:
            write(state, file, crc_check=crc_check)
        return
    held = StateDict.of(state)
    for name, entry in held.entries.items():
        if str(entry.dtype) not in _NAMES or 0 in entry.shape or not name:
            raise MigrateError(
                f"MindSpore cannot read a tensor of {entry.dtype} and the shape {entry.shape}",
                plain(name) or "a tensor without a name",
                "leave it out, or convert it to a dtype that MindSpore reads, such as float32",
            )
    crc = 0
    for name in held:
        crc = _put(out, name, held[name], crc, crc_check=crc_check)
    if crc_check:
        out.write(CRC + crc.to_bytes(10, "big"))


def _put(out: BinaryIO, name: str, tensor: torch.Tensor, crc: int, *, crc_check: bool) -> int:
    """Write one tensor, and return the checksum so far."""
    for piece in _entries(name, tensor):
        out.write(piece)
        crc = zlib.crc32(piece, crc) if crc_check else 0
    return crc


def _entries(name: str, tensor: torch.Tensor) -> Iterator[memoryview | bytes]:
    """Yield the bytes of a tensor's entries: each a head, and then its values as they lie."""
    if tensor.layout != torch.strided or tensor.is_meta:
        why = "without values" if tensor.is_meta else "that is sparse"
        raise MigrateError(
            f"MindSpore cannot read a tensor {why}", plain(name), "give it as a dense tensor"
        )
    values = raw(tensor)
    dims = b"".join(b"\x08" + _varint(length) for length in tensor.shape)
    kind = _bytes(2, _NAMES[str(tensor.dtype)].encode())
    for start in range(0, len(values), _SLICE):
        content = values[start : start + _SLICE]
        before = dims + kind + b"\x1a" + _varint(len(content))
        inner = len(before) + len(content)
        head = _bytes(1, name.encode()) + b"\x12" + _varint(inner) + before
        yield b"\x0a" + _varint(len(head) + len(content)) + head
        yield content


def _bytes(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])
