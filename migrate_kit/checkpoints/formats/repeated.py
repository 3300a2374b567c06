"""A repeated field of numbers, and the tensor that it is the values of."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from migrate_kit.checkpoints.formats.wire import BYTES, FIXED32, FIXED64, VARINT
from migrate_kit.checkpoints.state import Entry

if TYPE_CHECKING:
    from migrate_kit.checkpoints.formats.wire import Field, Wire

_MOST_PIECES = 10_000
_MOST_DIMENSIONS = 64
_BLOCK = 1 << 20
_WIDTHS = {FIXED32: 4, FIXED64: 8}


class Repeated:
    """A repeated field of numbers, packed or one by one, kept as places in the file.

    Parameters
    ----------
    wire : Wire
    kind : int
        The wire type of one number, which the schema knows and a packed field does not tell.
    what : str
        What it is, for an error.
    """

    def __init__(self, wire: Wire, kind: int, what: str) -> None:
        self.wire, self.kind, self.what = wire, kind, what
        self.pieces: list[tuple[int, int]] = []
        self.single: array[int] = array("Q")

    def add(self, field: Field) -> None:
        """Take one more field of it."""
        if field.kind == BYTES:
            if field.value:
                self.pieces.append((field.start, field.end))
        elif field.kind == self.kind:
            self.single.append(field.value)
        else:
            raise self.wire.source.damaged(f"{self.what} has values of the wrong type")
        if len(self.pieces) > _MOST_PIECES or (self.pieces and self.single):
            raise self.wire.source.damaged(f"{self.what} has its values in too many pieces")

    @property
    def most(self) -> int:
        """How many numbers there can be: exact for fixed widths, from the bytes for varints."""
        packed = sum(end - start for start, end in self.pieces)
        return len(self.single) + packed // _WIDTHS.get(self.kind, 1)

    @property
    def is_whole(self) -> bool:
        """Whether no piece ends in the middle of a number of fixed width."""
        width = _WIDTHS.get(self.kind, 1)
        return not any((end - start) % width for start, end in self.pieces)

    def shape(self) -> tuple[int, ...]:
        """Return the numbers as a shape: few, and signed."""
        found = [n - (1 << 64) if n >> 63 else n for n in self.single]
        for at, end in self.pieces:
            start = at
            while start < end and len(found) <= _MOST_DIMENSIONS:
                value, start = self.wire.varint(start, end, self.what)
                found.append(value - (1 << 64) if value >> 63 else value)
        if len(found) > _MOST_DIMENSIONS:
            raise self.wire.source.damaged(f"{self.what} has more than {_MOST_DIMENSIONS} numbers")
        return tuple(found)

    def numbers(self) -> np.ndarray[Any, Any]:
        """Return all of them, as float32, float64 or int64."""
        floats: dict[int, np.dtype[Any]] = {FIXED32: np.dtype("<f4"), FIXED64: np.dtype("<f8")}
        dtype = floats.get(self.kind)
        if self.single:
            flat = np.frombuffer(self.single, np.uint64)
            if self.kind == FIXED32:
                return flat.astype(np.uint32).view(np.float32)
            return flat.copy().view(dtype or np.dtype(np.int64))
        source = self.wire.source
        if not self.is_whole:
            raise source.damaged(f"{self.what} ends in the middle of a number")
        views = [source.view(start, end - start, self.what) for start, end in self.pieces]
        found = [self._varints(v) if dtype is None else np.frombuffer(v, dtype) for v in views]
        return np.concatenate(found) if found else np.zeros(0, dtype or np.dtype(np.int64))

    def _varints(self, view: memoryview) -> np.ndarray[Any, Any]:
        """Decode a piece block by block: the work of one takes thirty times its bytes."""
        data = np.frombuffer(view, np.uint8)
        found, at = [np.zeros(0, np.int64)], 0
        while at < len(data):
            block = data[at : at + _BLOCK]
            ends = np.flatnonzero(block < 128)
            starts = np.concatenate([[0], ends[:-1] + 1])
            lengths = ends - starts + 1
            longest = int(lengths.max()) if len(ends) else 11
            if longest > 10:
                raise self.wire.source.damaged(f"{self.what}: a number does not end")
            values = np.zeros(len(ends), np.uint64)
            for place in range(longest):
                wide = lengths > place
                part = (block[starts[wide] + place] & 127).astype(np.uint64)
                values[wide] |= part << np.uint64(7 * place)
            found.append(values.view(np.int64))
            at += int(ends[-1]) + 1
        return np.concatenate(found)


def entry_of(
    values: Repeated, dtype: torch.dtype, shape: tuple[int, ...], *, fill: bool = False
) -> Entry:
    """Return the entry of a tensor whose values are a repeated field.

    Parameters
    ----------
    values : Repeated
    dtype : torch.dtype
        Integers become floats of two bytes or one by their bits, as TensorFlow and ONNX keep them.
    shape : tuple of int
    fill : bool
        Whether a list shorter than the shape stands for its last value repeated, and an empty one
        for zeros, as in TensorFlow. Such memory is claimed from the file's budget.
    """
    wire, what = values.wire, values.what
    parts = 2 if dtype.is_complex else 1
    count = wire.source.checked_count(shape, what) * parts
    exact = values.kind != VARINT
    if (values.most > count and exact) or (values.most < count and not fill):
        raise wire.source.damaged(f"{what} has {values.most:,} values and the shape {shape}")
    if values.most < count:
        wire.claim(count // parts * dtype.itemsize, what)
    elif exact and len(values.pieces) == 1 and values.is_whole:
        return wire.source.entry(dtype, shape, values.pieces[0][0], what)

    def read() -> torch.Tensor:
        flat = values.numbers()
        if len(flat) > count or (len(flat) < count and not fill) or len(flat) % parts:
            raise wire.source.damaged(f"{what} has {len(flat):,} values and the shape {shape}")
        held = _tensor(flat, dtype)
        if len(held) == count // parts:
            return held.reshape(shape)
        last = held[-1:] if len(held) else torch.zeros(1, dtype=dtype)
        if len(held) <= 1:
            # One value for all: nothing is allocated.
            return last.reshape([1] * len(shape)).expand(shape)
        whole = last.expand(count // parts).clone()
        whole[: len(held)] = held
        return whole.reshape(shape)

    return Entry(shape, dtype, read)


def _tensor(flat: np.ndarray[Any, Any], dtype: torch.dtype) -> torch.Tensor:
    """Return numbers of the file as the dtype they stand for."""
    if not len(flat):
        return torch.zeros(0, dtype=dtype)
    if flat.dtype.kind == "f":
        real = torch.from_numpy(flat.copy())
        return real.view(dtype) if dtype.is_complex else real.to(dtype)
    if dtype.is_floating_point:
        bits = torch.from_numpy(flat.astype(np.int16 if dtype.itemsize == 2 else np.int8))
        return bits.view(dtype)
    if dtype == torch.bool:
        return torch.from_numpy(flat != 0)
    return torch.from_numpy(flat).to(dtype)
