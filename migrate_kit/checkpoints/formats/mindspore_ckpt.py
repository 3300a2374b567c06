"""MindSpore's .ckpt, read and written without MindSpore.

A protobuf message of the entries {1: name, 2: {1: dims, 2: type, 3: bytes}}; a tensor over 512 MiB
is several entries of one name that follow each other. ``crc_check=True`` adds ``crc_num`` and the
CRC-32 in ten bytes, big endian.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

import torch

from migrate_kit.checkpoints.formats.beside import left_out, set_apart
from migrate_kit.checkpoints.formats.mindspore_writer import CRC, DTYPES, write
from migrate_kit.checkpoints.formats.repeated import Repeated
from migrate_kit.checkpoints.formats.wire import BYTES, VARINT, Field, Wire, fits
from migrate_kit.checkpoints.state import Contents, Entry, StateDict
from migrate_kit.results import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from migrate_kit.checkpoints.formats.source import Source

__all__ = ["optimizer_names", "read", "recognises", "write"]

_OTHER_TYPES: Final = ("str", "Int4")
_ENTRY: Final = {1: BYTES, 2: BYTES, 3: BYTES}
_TENSOR: Final = {1: -1, 2: BYTES, 3: BYTES}
_MOST_CHECKED: Final = 256 << 20
# What optimizers and trainers add. The former stand before the name of a weight.
_STATE_OF: Final = (
    *("moments.", "moment1.", "moment2.", "adam_m.", "adam_v.", "accum.", "accumulation."),
    *("stat.", "mean_square.", "mean_gradient.", "mean_grad.", "rms.", "delta.", "linear."),
    *("exp_avg.", "exp_avg_sq.", "max_exp_avg_sq.", "square_avg.", "momentum_buffer.", "vhat."),
)
_STATE: Final = (
    *("learning_rate", "momentum", "beta1_power", "beta2_power", "weight_decay", "global_step"),
    *("scale_sense", "current_iterator_step", "last_overflow_iterator_step", "loss_scale"),
    *("epoch_num", "step_num", "cur_epoch_num", "cur_step_num", "batch_num"),
)


def recognises(source: Source) -> bool:
    """Whether the first entry holds a tensor of one of MindSpore's types."""
    wire = Wire(source)
    for field in wire.begin(wire.root, 1):
        inner = wire.begin(field) if (field.number, field.kind) == (1, BYTES) else []
        if fits(inner, _ENTRY) and inner[0].number == 1 and len(inner) > 1:
            tensor = wire.begin(inner[1])
            types = [wire.head(f) for f in tensor if f.number == 2]
            known = [t.encode() for t in (*DTYPES, *_OTHER_TYPES)]
            return fits(tensor, _TENSOR) and any(kind in known for kind in types[:1])
    return False


def read(source: Source) -> Contents:
    """List the network's tensors; ``parts["optimizer"]`` has what optimizer and trainer keep."""
    entries, texts, without = _read_all(source)
    state = set(optimizer_names(entries))
    kept = {name: entry for name, entry in entries.items() if name not in state}
    kind = "training checkpoint" if state else "weights"
    found = Contents("MindSpore ckpt", kind, StateDict(kept), texts)
    for name in _STATE:
        if name in state and entries[name].nbytes == entries[name].dtype.itemsize:
            found.extras[name] = f"{entries[name].read().item():.6g}"
    set_apart(found, "optimizer", {n: e for n, e in entries.items() if n in state})
    if without:
        found.findings.append(left_out(source, without))
    damage = _crc_finding(source)
    if damage:
        found.findings.append(damage)
    return found


def optimizer_names(names: Iterable[str]) -> list[str]:
    """Return those names that an optimizer or trainer wrote beside a network's own.

    Examples
    --------
    >>> optimizer_names(["fc.weight", "moments.fc.weight", "learning_rate", "stat.mean"])
    ['moments.fc.weight', 'learning_rate']
    """
    names = list(names)
    known = set(names)

    def is_state(name: str) -> bool:
        before = next((p for p in _STATE_OF if name.startswith(p)), None)
        # Only before the name of a weight: a network may have a module called "stat".
        return name in _STATE or (before is not None and name[len(before) :] in known)

    return [name for name in names if is_state(name)]


def _read_all(source: Source) -> tuple[dict[str, Entry], dict[str, str], dict[str, str]]:
    """Return the tensors, the texts, and the types that PyTorch lacks, each by name."""
    wire = Wire(source)
    parts: dict[str, list[_Part]] = {}
    last = ""
    for part in _parts(wire, source):
        if part.name in parts and part.name != last:
            raise source.damaged(f"{part.name[:80]!r} is there twice")
        parts.setdefault(part.name, []).append(part)
        last = part.name
    entries, texts, without = {}, {}, {}
    for name, pieces in parts.items():
        kind = pieces[0].type
        dtype = getattr(torch, DTYPES.get(kind, "none"), None)
        if kind == "str":
            texts[name[:80]] = _text(source, pieces[0])
        elif isinstance(dtype, torch.dtype):
            entries[name] = _entry(source, pieces, dtype)
        else:
            without[name] = kind
    return entries, texts, without


class _Part:
    """One entry of the file: a tensor, or a slice of a big one."""

    def __init__(self, wire: Wire, field: Field) -> None:
        source = wire.source
        self.name, self.type, tensor = "", "", None
        for inner in wire.fields(field, "an entry", _ENTRY):
            if inner.number == 1:
                self.name = wire.text(inner, "the name of a tensor")
            elif inner.number == 2:
                tensor = inner
            else:
                self.type = "MapParameter"
        self.what = f"{self.name[:80]!r}"
        dims = Repeated(wire, VARINT, self.what)
        self.start = self.length = 0
        if tensor is not None:
            for inner in wire.fields(tensor, self.what, _TENSOR):
                if inner.number == 1:
                    dims.add(inner)
                elif inner.number == 2:
                    self.type = wire.text(inner, f"the type of {self.what}")[:40]
                else:
                    self.start, self.length = inner.start, inner.value
        if not self.name or not self.type:
            raise source.damaged(f"{self.what} has no name or no type")
        self.shape = dims.shape()


def _parts(wire: Wire, source: Source) -> Iterator[_Part]:
    size = _size(source)
    body = Field(0, BYTES, size, 0, size)
    for field in wire.fields(body, "the file"):
        if (field.number, field.kind) != (1, BYTES):
            raise source.damaged(f"at byte {field.start:,} is no tensor")
        yield _Part(wire, field)


def _size(source: Source) -> int:
    """Return where the tensors end: before the CRC, if there is one."""
    return source.size - 17 if source.tail(17)[:7] == CRC else source.size


def _entry(source: Source, pieces: list[_Part], dtype: torch.dtype) -> Entry:
    first, what = pieces[0], pieces[0].what
    # [0] with a value is how older versions write a scalar, and how newer ones read it.
    shape = () if first.shape == (0,) and first.length else first.shape
    length = source.checked_count(shape, what) * dtype.itemsize
    if sum(piece.length for piece in pieces) != length:
        held = sum(piece.length for piece in pieces)
        raise source.damaged(f"{what} has {held:,} bytes and the shape {shape}")
    if any((piece.shape, piece.type) != (first.shape, first.type) for piece in pieces):
        raise source.damaged(f"{what} is there twice")
    if len(pieces) == 1:
        return source.entry(dtype, shape, first.start, what)

    def read() -> torch.Tensor:
        whole = torch.empty(length, dtype=torch.uint8)
        at = 0
        for piece in pieces:
            part = source.tensor(torch.uint8, (piece.length,), piece.start, what)
            whole[at : at + piece.length] = part
            at += piece.length
        return whole.view(dtype).reshape(shape)

    return Entry(shape, dtype, read)


def _text(source: Source, part: _Part) -> str:
    """Return a text that ``append_dict`` kept: NumPy's four bytes a character."""
    data = source.bytes(part.start, min(part.length, 800), part.what)
    return data.decode("utf-32-le", "replace").rstrip("\0")


def _crc_finding(source: Source) -> Finding | None:
    size = _size(source)
    # Comparing reads the whole file, which listing must not do to a big one.
    if size == source.size or size > _MOST_CHECKED:
        return None
    if zlib.crc32(source.view(0, size, "the file")) == int.from_bytes(source.tail(10), "big"):
        return None
    return Finding(
        "error",
        "the checksum that MindSpore added does not fit the file",
        source.path.name,
        "copy or download it again",
    )
