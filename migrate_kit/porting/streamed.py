"""Tensors that change on their way from one file to another, one at a time, and are counted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from migrate_kit.checkpoints.state import Entry
from migrate_kit.errors import MigrateError
from migrate_kit.porting.rules import forward
from migrate_kit.results import Finding, counted, few, plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from migrate_kit.porting.renaming import Renamed

_DTYPES = {
    **dict.fromkeys(("float16", "fp16", "half"), torch.float16),
    **dict.fromkeys(("bfloat16", "bf16"), torch.bfloat16),
    **dict.fromkeys(("float32", "fp32", "float"), torch.float32),
    **dict.fromkeys(("float64", "fp64", "double"), torch.float64),
}


def float_type(dtype: torch.dtype | str | None) -> torch.dtype | None:
    """Return a floating-point dtype by one of its names.

    Raises
    ------
    MigrateError
        If it is none that MindSpore's checkpoints have.

    Examples
    --------
    >>> float_type("bf16")
    torch.bfloat16
    """
    if dtype is None or dtype in _DTYPES.values():
        return dtype if isinstance(dtype, torch.dtype) else None
    if str(dtype).removeprefix("torch.") not in _DTYPES:
        raise MigrateError(
            f"no floating-point dtype {str(dtype)!r}", "dtype=", f"one of {', '.join(_DTYPES)}"
        )
    return _DTYPES[str(dtype).removeprefix("torch.")]


@dataclass
class Tally:
    """What happened to values on the way, by tensor."""

    not_finite: dict[str, int] = field(default_factory=dict)
    overflowed: dict[str, int] = field(default_factory=dict)
    vanished: dict[str, int] = field(default_factory=dict)

    def findings(self, dtype: torch.dtype | None) -> list[Finding]:
        """Return what is to be said, the gravest first."""
        name = str(dtype).removeprefix("torch.")
        found = []
        if self.overflowed:
            what = f"{_values(self.overflowed)} too large for {name}, now infinite"
            fix = "keep float32, or take bfloat16, which has its range"
            found.append(Finding("error", what, few(self.overflowed), fix))
        if self.not_finite:
            what = f"{_values(self.not_finite)} NaN or infinite in the source"
            fix = "these weights give NaN in any framework; take an earlier checkpoint"
            found.append(Finding("warning", what, few(self.not_finite), fix))
        if self.vanished:
            what = f"{_values(self.vanished)} too small for {name}, now zero"
            fix = "a running variance or a scale must not vanish: compare the outputs"
            found.append(Finding("info", what, few(self.vanished), fix))
        return found


def _values(counts: Mapping[str, int]) -> str:
    return f"{counted(sum(counts.values()), 'value')} of {counted(len(counts), 'tensor')}"


def streamed(entry: Entry, move: Renamed, dtype: torch.dtype | None, tally: Tally) -> Entry:
    """Return the entry of what MindSpore's file will hold; reading it counts into ``tally``."""
    floating = entry.dtype.is_floating_point
    out = dtype if dtype is not None and floating else entry.dtype
    shape = tuple(forward(move.transform, torch.empty(entry.shape, device="meta")).shape)

    def read() -> torch.Tensor:
        values = entry.read().detach()
        if values.is_meta or values.layout != torch.strided:
            raise MigrateError(
                f"a tensor {'without values' if values.is_meta else 'that is sparse'}",
                plain(move.torch_name),
                "give it as a dense tensor with its values",
            )
        changed = values.to(out)
        if floating:
            _count(values, changed, move.torch_name, tally)
        tensor: torch.Tensor = forward(move.transform, changed)
        return tensor

    # Two names of one memory stay two tensors here: each is written whole.
    return Entry(shape, out, read)


def _count(values: torch.Tensor, changed: torch.Tensor, name: str, tally: Tally) -> None:
    after = _not_finite(changed)
    # PyTorch compares no 8-bit floats, and none is too large or too small for another dtype.
    alike = changed.dtype == values.dtype or values.itemsize == 1
    before = after if alike else _not_finite(values)
    if before:
        tally.not_finite[name] = before
    if alike:
        return
    if after > before:
        tally.overflowed[name] = after - before
    vanished = int(values.count_nonzero() - changed.count_nonzero())
    if vanished > 0:
        tally.vanished[name] = vanished


def _not_finite(values: torch.Tensor) -> int:
    if not values.numel() or values.itemsize == 1:
        return 0
    # One pass and no memory: a NaN comes through as the least and the greatest.
    if all(bool(torch.isfinite(end)) for end in torch.aminmax(values)):
        return 0
    return int((~torch.isfinite(values)).sum())
