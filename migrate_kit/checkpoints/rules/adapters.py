"""LoRA: two small matrices beside a frozen weight, to be added to it."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from migrate_kit.checkpoints.sides import Piece, made_of
from migrate_kit.results import Finding

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import torch

    from migrate_kit.checkpoints.sides import Make, Slot

    Pieces = dict[str, Piece]

# layer.lora_A.default.weight (the adapter's name is free), layer.lora_A.weight, .lora_down.weight
_HALF = re.compile(r"(.+)\.lora_(A|B|down|up)(?:\.[^.]+)?\.weight|(.+)\.lora_(A|B)")
_CONFIG = "adapter_config.json"


@dataclass(frozen=True)
class Scaling:
    """What a LoRA is multiplied by: ``alpha / rank``, or ``alpha / sqrt(rank)``."""

    alpha: float
    root: bool = False

    def factor(self, rank: int) -> float:
        """Return the factor for matrices of this rank."""
        return self.alpha / (math.sqrt(rank) if self.root else rank)


def scaling_beside(path: Path | None) -> Scaling | None:
    """Read alpha from PEFT's ``adapter_config.json`` beside the file, if it is there."""
    if path is None:
        return None
    folder = path if path.is_dir() else path.parent
    try:
        config = json.loads((folder / _CONFIG).read_text(encoding="utf-8"))
        return Scaling(float(config["lora_alpha"]), bool(config.get("use_rslora")))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def merge_lora(
    pieces: Pieces, slots: Mapping[str, Slot], scaling: Scaling | None, findings: list[Finding]
) -> tuple[Pieces, list[str]]:
    """Add each LoRA to its weight: ``weight + factor * (B @ A)``; also name what could not be."""
    halves = _halves(pieces)
    if not halves or any(_HALF.fullmatch(name) for name in slots):
        return pieces, []  # no LoRA, or a model that has room for it
    named = dict(pieces)
    alone, unscaled = [], []
    for layer, (down, up) in halves.items():
        base = next((n for e in (".base_layer", "") if (n := f"{layer}{e}.weight") in named), None)
        alpha = named.get(f"{layer}.alpha")
        if base is None:
            alone.append(layer)
        elif scaling is None and alpha is None:
            unscaled.append(layer)
        else:
            parts = [named.pop(base), named.pop(down), named.pop(up)]
            if alpha is not None:
                parts.append(named.pop(alpha.name))
            name = f"{layer}.weight"
            how = "alpha of the file" if alpha is not None else f"alpha = {scaling.alpha:g}"  # type: ignore[union-attr]
            merge = _merge(scaling)
            named[name] = made_of(name, parts[0].shape, parts, merge, f"LoRA merged ({how})")
    if alone:
        findings.append(
            Finding(
                "error",
                f"a LoRA of {len(alone)} layers without the weights that it is added to",
                alone[0],
                "load the base model's weights first, then add the adapter with peft:"
                " PeftModel.from_pretrained(model, folder).merge_and_unload()",
            )
        )
    if unscaled:
        findings.append(
            Finding(
                "error",
                f"a LoRA of {len(unscaled)} layers, and the file does not say its alpha",
                unscaled[0],
                f"diagnose(model, checkpoint, lora_alpha=...): the number is in {_CONFIG}",
            )
        )
    return named, [name for layer in (*alone, *unscaled) for name in halves[layer]]


def _halves(pieces: Pieces) -> dict[str, tuple[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for name in pieces:
        match = _HALF.fullmatch(name)
        if match:
            half = "down" if (match[2] or match[4]) in ("A", "down") else "up"
            found.setdefault(match[1] or match[3], {})[half] = name
    return {layer: (h["down"], h["up"]) for layer, h in found.items() if len(h) == 2}


def _merge(scaling: Scaling | None) -> Make:
    def merge(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        weight, down, up = tensors[:3]
        rank = down.shape[0]
        alpha = tensors[3] if len(tensors) > 3 else None
        own = None if alpha is None else Scaling(1.0)
        used = own or scaling
        assert used is not None  # noqa: S101 - the caller has one of the two
        factor = used.factor(rank) * (1.0 if alpha is None else alpha.float())
        change = (up.flatten(1).float() @ down.flatten(1).float()) * factor
        return (weight.float() + change.reshape(weight.shape)).to(weight.dtype)

    return merge
