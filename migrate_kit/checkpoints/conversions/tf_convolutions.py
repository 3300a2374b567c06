"""The convolutions of a TensorFlow graph, and what is added to and multiplied with each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from migrate_kit.checkpoints.proofs.graph_run import GraphRun, plain_name
from migrate_kit.errors import MigrateError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from migrate_kit.checkpoints.formats.frozen_graph import Node

_NORMS = ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
_SUMS = ("BiasAdd", "Add", "AddV2", "Sub")
_PASSING = ("Identity", "StopGradient")
_MOST_STEPS = 16


@dataclass(frozen=True)
class Norm:
    """A batch normalization that the graph still has whole."""

    gamma: torch.Tensor
    beta: torch.Tensor
    mean: torch.Tensor
    variance: torch.Tensor
    epsilon: float


@dataclass
class Convolution:
    """One convolution: ``scale * conv(x) + shift``.

    Attributes
    ----------
    node : Node
    name : str
        Of its weights' constant.
    kernel : Tensor
        Height, width, in, out; of a depthwise one height, width, channel, multiplier.
    scale : Tensor or None
    shift : Tensor or None
    norm : Norm or None
        Where the first thing after it is one; it is in ``scale`` and ``shift`` as well.
    last : Node
        What gives the sum.
    """

    node: Node
    name: str
    kernel: torch.Tensor
    scale: torch.Tensor | None
    shift: torch.Tensor | None
    norm: Norm | None
    last: Node


def convolutions(nodes: Iterable[Node]) -> list[Convolution]:
    """Return every convolution whose kernel is a constant, in the order of the graph.

    What follows it is found in the graph and not by names: a published graph has the scale of some
    batch normalizations in the weights already, and another exporter leaves all of them.

    Raises
    ------
    MigrateError
        If what follows a convolution cannot be computed.
    """
    nodes = list(nodes)
    run = GraphRun(nodes)
    readers: dict[str, list[Node]] = {}
    for node in nodes:
        for name in {plain_name(i) for i in node.inputs if not i.startswith("^")}:
            readers.setdefault(name, []).append(node)
    found = []
    for node in nodes:
        if node.op in ("Conv2D", "DepthwiseConv2dNative") and len(node.inputs) == 2:
            constant = _constant(run, node.inputs[1])
            if constant is not None:
                found.append(_followed(run, readers, node, constant))
    return found


def _constant(run: GraphRun, name: str) -> Node | None:
    """Return the constant behind a name, through what only passes it on."""
    for _ in range(_MOST_STEPS):
        node = run.nodes.get(plain_name(name))
        if node is None or node.op not in _PASSING:
            break
        name = node.inputs[0] if node.inputs else ""
    return node if node is not None and node.tensor is not None else None


def _followed(
    run: GraphRun, readers: dict[str, list[Node]], node: Node, constant: Node
) -> Convolution:
    found = Convolution(node, constant.name, run.value(constant.name), None, None, None, node)
    if found.kernel.ndim != 4:
        raise MigrateError(
            f"a kernel of the shape {tuple(found.kernel.shape)}",
            constant.name[:100],
            "check the file",
        )
    for _ in range(_MOST_STEPS):
        after = readers.get(found.last.name, [])
        # What only reads the shape does not change the values.
        after = [n for n in after if n.op != "Shape"]
        if len(after) != 1 or not _absorbed(run, found, after[0]):
            break
        found.last = after[0]
    return found


def _absorbed(run: GraphRun, found: Convolution, node: Node) -> bool:
    """Take a node's scale and shift, if it has just those."""
    inputs = [plain_name(i) for i in node.inputs if not i.startswith("^")]
    if node.op in _PASSING:
        return True
    if node.op in _NORMS and len(inputs) == 5 and inputs[0] == found.last.name:
        gamma, beta, mean, variance = (run.value(i).float() for i in inputs[1:])
        epsilon = float(node.attrs.get("epsilon", 1e-4))
        if found.scale is None and found.shift is None:
            found.norm = Norm(gamma, beta, mean, variance, epsilon)
        factor = gamma / torch.sqrt(variance + epsilon)
        _scale(found, factor)
        _shift(found, beta - mean * factor)
        return True
    if node.op not in (*_SUMS, "Mul") or len(inputs) != 2:
        return False
    value = _parameter(run, found, node.op, inputs)
    if value is not None and node.op == "Mul":
        _scale(found, value)
    elif value is not None:
        _shift(found, -value if node.op == "Sub" else value)
    return value is not None


def _parameter(
    run: GraphRun, found: Convolution, op: str, inputs: list[str]
) -> torch.Tensor | None:
    """Return the other input, if it is one number a channel and depends on no image."""
    other = inputs[1] if inputs[0] == found.last.name else inputs[0]
    if other == found.last.name or (op == "Sub" and other == inputs[0]):
        return None
    try:
        value = run.value(other).float()
    except MigrateError:
        return None  # It depends on the image: a branch, and no parameter.
    return value.reshape(-1) if value.numel() in (1, _channels(found)) else None


def _channels(found: Convolution) -> int:
    *_, before, after = found.kernel.shape
    return before * after if found.node.op == "DepthwiseConv2dNative" else after


def _scale(found: Convolution, factor: torch.Tensor) -> None:
    factor = factor.expand(_channels(found))
    found.scale = factor if found.scale is None else found.scale * factor
    found.shift = None if found.shift is None else found.shift * factor


def _shift(found: Convolution, value: torch.Tensor) -> None:
    value = value.expand(_channels(found))
    found.shift = value if found.shift is None else found.shift + value
