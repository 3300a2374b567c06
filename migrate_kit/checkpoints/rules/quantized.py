"""Weights that are integers or packed: not to be loaded into a network of floats."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import torch

from migrate_kit.checkpoints.vocabulary import vocabulary
from migrate_kit.results import Finding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from migrate_kit.checkpoints.sides import Piece, Slot

# What to do, by who quantized it.
_CURE = {
    "bitsandbytes 8-bit": "load it with the library that wrote it, dequantize there"
    " (model.dequantize()), and save model.state_dict()",
    "GPTQ or AWQ": "load it with the library that wrote it, or take the float weights that it was"
    " made from",
    "PyTorch quantized": "prepare and convert the model as before saving, then load; or take the"
    " float weights",
}
_CURE["bitsandbytes 4-bit"] = _CURE["bitsandbytes 8-bit"]
_CURE["GPTQ"] = _CURE["GPTQ or AWQ"]
_MLU = "Cambricon MLU quantized"
_INTEGERS = (torch.qint8, torch.quint8, torch.qint32)


def quantization(
    pieces: Mapping[str, Piece], slots: Mapping[str, Slot]
) -> tuple[dict[str, str], dict[str, str], list[Finding]]:
    """Find what is quantized: names that cannot be used, names that need not, and the findings.

    Both name the reason. A network that has places of these names is quantized itself.
    """
    kinds: dict[str, str] = {}
    layers: dict[str, set[str]] = defaultdict(set)
    for name, piece in pieces.items():
        if name in slots and slots[name].dtype == piece.dtype:
            continue
        parts = name.split(".")
        depth = next((i for i, part in enumerate(parts) if part in vocabulary("quantized")), None)
        if depth is not None:
            kind = vocabulary("quantized")[parts[depth]].becomes
            kinds[name] = kind
            layers[kind].add(".".join(parts[:depth]))
        if piece.dtype in _INTEGERS:
            kinds[name] = "PyTorch quantized"
            layers["PyTorch quantized"].add(".".join(parts[:-1]))
    mlu = layers.pop(_MLU, set())
    for kind, paths in layers.items():
        own = {f"{path}.{leaf}" for path in paths for leaf in ("scale", "scales")}
        kinds |= {n: kind for n in own if n in pieces and n not in slots}
    left_out = {
        n: "a setting of the quantized layer; its weight is the float one"
        for n in pieces
        if n.rpartition(".")[0] in mlu and n.rpartition(".")[2] not in ("weight", "bias")
    }
    unusable = {n: f"{kind}: no float weight" for n, kind in kinds.items() if kind != _MLU}
    findings = [_finding(kind, sorted(named), kinds) for kind, named in layers.items()]
    if mlu:
        findings.append(
            Finding(
                "info",
                f"{len(mlu)} layers were quantized for a Cambricon MLU: the file keeps their float"
                " weights, the scales are left out",
                min(mlu),
                "to run it quantized, load it into the network that quantize_dynamic_mlu returned",
            )
        )
    return unusable, left_out, findings


def packed(pieces: Mapping[str, Piece], slots: Mapping[str, Slot]) -> dict[str, str]:
    """Return the pieces of integers whose place is for floats, with the reason."""
    return {
        n: f"{str(p.dtype).removeprefix('torch.')} values for a place of floats: a quantized weight"
        for n, p in pieces.items()
        if n in slots
        and slots[n].dtype.is_floating_point
        and p.dtype in (torch.int8, torch.uint8, torch.int32)
        and len(p.shape) > 1
    }


def _finding(kind: str, layers: list[str], kinds: dict[str, str]) -> Finding:
    count = Counter(kinds.values())[kind]
    what = f"{len(layers)} layers are quantized ({kind}): {count} tensors are no float weights"
    return Finding("error", what, layers[0], _CURE[kind])
