"""OpenCV's own importers for Darknet and Caffe, where OpenCV is installed."""

from __future__ import annotations

from importlib.util import find_spec
from math import prod
from typing import TYPE_CHECKING, Any

import torch

from migrate_kit.checkpoints.formats.darknet_layers import HEADS
from migrate_kit.checkpoints.proofs.measured import Proof

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from migrate_kit.checkpoints.formats.darknet import Fit
    from migrate_kit.checkpoints.formats.darknet_layers import Layer, Plan

# What it adds to a variance; fixed in its source.
EPSILON = 1e-6
LIMIT = 1e-4
# yolov3 at 608 x 608 takes 70e9 multiplications: some seconds on two cores.
_MOST_WORK = 200e9
_MOST_VALUES = 1 << 28


def opencv(importer: str) -> tuple[Any, str]:
    """Return cv2 and its name with the version; or None and why."""
    if find_spec("cv2") is None:
        return None, "OpenCV is not installed (opencv-python-headless)"
    import cv2

    if not hasattr(cv2, "dnn") or not hasattr(cv2.dnn, importer):
        return None, f"OpenCV {cv2.__version__} has no {importer}"
    return cv2, f"OpenCV {cv2.__version__}"


def exactly(network: Any) -> None:
    """Switch off an algorithm that is faster, and ten times less exact."""
    if hasattr(network, "enableWinograd"):
        network.enableWinograd(False)


def too_large(plan: Plan) -> str:
    """Return why a network is not run, or nothing."""
    work = sum(layer.work for layer in plan.layers)
    values = prod(plan.image) + sum(_values(layer) for layer in plan.layers)
    if work > _MOST_WORK or values > _MOST_VALUES:
        return f"too large for a check: {work:.1g} multiplications, {values:,} values"
    return ""


def _values(layer: Layer) -> int:
    """Return how many numbers a layer holds: its output, or its input with the padding."""
    channels, height, width = layer.shapes[0]
    edge: int = 2 * layer.settings.get("padding", 0)
    return max(prod(layer.shape), channels * (height + edge) * (width + edge))


def prove_darknet(
    ours: Sequence[torch.Tensor], image: torch.Tensor, found: Fit, cfg: Path, weights: Path
) -> list[Proof]:
    """Compare the raw outputs of a network with what OpenCV makes of the same files.

    Parameters
    ----------
    ours : sequence of Tensor
        What the converted network returned, with OpenCV's epsilon.
    image : Tensor
    found : Fit
    cfg, weights : Path
        The originals.
    """
    cv2, name = opencv("readNetFromDarknet")
    reason = name if cv2 is None else _not_alike(found)
    if reason:
        return [Proof.not_run("OpenCV", reason)]
    try:
        network = cv2.dnn.readNetFromDarknet(str(cfg), str(weights))
        exactly(network)
        names = network.getLayerNames()
        wanted = [_output(names, found.plan, index) for index in found.plan.outputs]
        network.setInput(image.numpy())
        theirs = network.forward(wanted)
    except cv2.error as error:
        text = str(error).strip().splitlines()[-1][:200]
        return [Proof.not_run(name, f"it does not read this .cfg: {text}")]
    return [
        Proof.of(name, f"layer {index}", a, torch.from_numpy(b).reshape(a.shape), LIMIT)
        for index, a, b in zip(found.plan.outputs, ours, theirs, strict=True)
    ]


def _output(names: Sequence[str], plan: Plan, index: int) -> str:
    """Return OpenCV's name of what a head is given, or of the last layer's output."""
    if plan.layers[index].kind not in HEADS:
        return names[-1]
    return names[names.index(f"permute_{index}") - 1]


def _not_alike(found: Fit) -> str:
    """Return what of a network OpenCV would compute otherwise, without a word, or nothing."""
    header = found.header
    if found.missing:
        return "the file does not hold the whole network"
    if header.transposed:
        return "it does not read transposed weights"
    major, minor = map(int, header.version.split(".")[:2])
    if (header.length == 20) != (major * 10 + minor >= 2):
        return f"it would read another header than the one of {header.length} bytes that fits"
    for index, layer in enumerate(found.plan.layers):
        what = _unread(layer)
        if what:
            return f"it does not read {what} of layer {index}"
    return ""


def _unread(layer: Layer) -> str:
    options, settings = layer.section.options, layer.settings
    repeated = len(layer.inputs) > 2 and layer.kind == "shortcut"
    sizes = {shape[1:] for shape in layer.shapes}
    asked = {
        # It takes the last of two equal keys, Darknet the first.
        "a key that stands there twice": bool(layer.section.again),
        "dilation": settings.get("dilation", 1) > 1,
        "stride_x": "stride_x" in options or "stride_y" in options,
        "weights_type": layer.kind == "shortcut" and bool(layer.parts),
        "more than one layer in from=": repeated,
        "layers of different sizes": layer.kind == "shortcut" and len(sizes) > 1,
        "scale": settings.get("scale", 1.0) != 1.0,
        "scale_wh": "scale_wh" in options,
        "temperature": settings.get("temperature", 1.0) != 1.0,
        # It takes no activation for linear, Darknet for logistic.
        "a missing activation": layer.kind in ("convolutional", "connected")
        and "activation" not in options,
        "the name": layer.kind != layer.section.type,
        "groups of several layers": layer.kind == "route"
        and settings["groups"] > 1
        and len(layer.inputs) > 1,
    }
    return next((what for what, is_so in asked.items() if is_so), "")
