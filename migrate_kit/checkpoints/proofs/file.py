"""The written file, read again as a stranger would read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from migrate_kit.checkpoints.proofs.measured import Proof

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def prove_file(state: Mapping[str, torch.Tensor], path: Path) -> Proof:
    """Compare every value, bit by bit."""
    against = f"{path.name} read by torch.load(weights_only=True)"
    again = torch.load(path, map_location="cpu", weights_only=True)
    if list(again) != list(state):
        return Proof(against, "names", float("inf"), reason="other names")
    for name, tensor in state.items():
        # As bytes: NaN is a value like any other here.
        if not _equal(tensor, again[name]):
            return Proof(against, name, float("inf"), reason="other values")
    return Proof(against, f"{len(state)} tensors", 0.0, 0.0)


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return torch.equal(*(t.contiguous().reshape(-1).view(torch.uint8) for t in (a, b)))
