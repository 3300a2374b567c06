"""Which axis of a tensor becomes a row of the heatmap, and how many elements make a cell."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

_PARAMETERS = {"parameter gradient", "update", "optimizer"}
# Elements read at a time: a megabyte of float32 stays in the second-level cache.
_PIECE = 1 << 18


@dataclass(frozen=True)
class Axis:
    """One side of the picture: what it counts, how many there are, how many a cell holds."""

    name: str
    axes: tuple[int, ...]
    total: int
    block: int

    @property
    def cells(self) -> int:
        """How many cells lie along it."""
        return -(-self.total // self.block)

    def describe(self) -> dict[str, Any]:
        """Return what the browser needs to name a cell."""
        return {
            "name": self.name,
            "axes": list(self.axes),
            "total": self.total,
            "block": self.block,
            "cells": self.cells,
        }


@dataclass(frozen=True)
class Piece:
    """A run of elements that lie beside each other in memory, as a box of the layout."""

    start: int
    origin: tuple[int, int, int]
    shape: tuple[int, int, int]

    @property
    def end(self) -> int:
        """One past its last element."""
        return self.start + math.prod(self.shape)

    def cells(self, layout: Layout) -> tuple[slice, ...]:
        """Return the cells it touches."""
        bounds = zip(self.origin, self.shape, layout.blocks, strict=True)
        return tuple(slice(o // b, -(-(o + n) // b)) for o, n, b in bounds)


@dataclass(frozen=True)
class Layout:
    """A tensor seen as (outer, middle, inner), in memory order, and each cut into blocks.

    ``turned`` says that the channel is the inner axis (N, T, C): the small picture is turned,
    not the large tensor.
    """

    outer: Axis
    middle: Axis
    inner: Axis
    turned: bool = False

    @property
    def blocks(self) -> tuple[int, int, int]:
        """Elements of one cell along each axis."""
        return self.outer.block, self.middle.block, self.inner.block

    @property
    def cells(self) -> tuple[int, int, int]:
        """Cells along each axis."""
        return self.outer.cells, self.middle.cells, self.inner.cells

    @property
    def exact(self) -> bool:
        """Whether each cell is one element."""
        return self.blocks == (1, 1, 1)

    def pieces(self) -> Iterator[Piece]:
        """Cut the tensor into pieces that never divide a cell along an axis they span."""
        a_all, r_all, b_all = self.outer.total, self.middle.total, self.inner.total
        a_step, r_step, b_step = 1, 1, b_all
        if r_all * b_all <= _PIECE:
            a_step, r_step = _whole(_PIECE // (r_all * b_all), self.outer.block), r_all
        elif b_all <= _PIECE:
            r_step = _whole(_PIECE // b_all, self.middle.block)
        else:
            b_step = _whole(_PIECE, self.inner.block)
        for a in range(0, a_all, a_step):
            for r in range(0, r_all, r_step):
                for b in range(0, b_all, b_step):
                    shape = (min(a_step, a_all - a), min(r_step, r_all - r), min(b_step, b_all - b))
                    yield Piece((a * r_all + r) * b_all + b, (a, r, b), shape)

    def picture(self, cells: torch.Tensor) -> np.ndarray[Any, Any]:
        """Return the cells as rows and columns: channels down, positions across."""
        if self.turned:
            return cells[0].T.contiguous().numpy()
        return cells.permute(1, 0, 2).reshape(self.middle.cells, -1).numpy()

    def describe(self) -> dict[str, Any]:
        """Return rows, samples and columns in the words of a caption."""
        row, column = (self.inner, self.middle) if self.turned else (self.middle, self.inner)
        sample = self.outer.describe() if self.outer.total > 1 else None
        return {"row": row.describe(), "sample": sample, "column": column.describe()}


def _whole(count: int, block: int) -> int:
    return max(1, count // block) * block


def _axis(name: str, axes: tuple[int, ...], shape: tuple[int, ...], cells: int) -> Axis:
    total = math.prod(shape[a] for a in axes)
    return Axis(name, axes, total, -(-total // max(1, cells)))


def layout_of(shape: tuple[int, ...], channel: str, rows: int, columns: int) -> Layout:
    """Choose rows and columns for a tensor of this shape.

    Examples
    --------
    >>> layout_of((1, 64, 112, 112), "forward", 96, 256).cells
    (1, 64, 256)
    >>> layout_of((2, 77, 768), "forward", 96, 256).describe()["row"]["name"]
    'channel'
    """
    ndim = len(shape)
    every = tuple(range(ndim))
    one = Axis("", (), 1, 1)
    if ndim < 2:
        return Layout(one, one, _axis("element", every, shape, columns))
    if ndim == 2 or channel in _PARAMETERS:
        names = ("row", "column") if channel in _PARAMETERS else ("sample", "feature")
        first = _axis(names[0], every[:1], shape, rows)
        return Layout(one, first, _axis(names[1], every[1:], shape, columns))
    if ndim == 3:
        position = _axis("position", every[:2], shape, columns)
        return Layout(one, position, _axis("channel", every[2:], shape, rows), turned=True)
    sample = _axis("sample", every[:1], shape, columns)
    position = _axis("position", every[2:], shape, columns // sample.cells)
    return Layout(sample, _axis("channel", every[1:2], shape, rows), position)


def pool(box: torch.Tensor, blocks: tuple[int, int, int]) -> torch.Tensor:
    """Return the largest value of each block; the last block of an axis may be short."""
    for axis in (2, 1, 0):
        block, count = blocks[axis], box.shape[axis]
        if block == 1:
            continue
        if count <= block:
            box = box.amax(axis, keepdim=True)
            continue
        whole = count // block * block
        main = box.narrow(axis, 0, whole).unflatten(axis, (whole // block, block)).amax(axis + 1)
        if whole < count:
            rest = box.narrow(axis, whole, count - whole).amax(axis, keepdim=True)
            main = torch.cat([main, rest], axis)
        box = main
    return box
