"""Run a TensorFlow graph node by node, in its own layout.

The few operators of a convolutional network; enough to compare with, and nothing of the converted
network is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional as F  # noqa: N812

from migrate_kit.errors import MigrateError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from migrate_kit.checkpoints.formats.frozen_graph import Node

# The largest value of SSD-MobileNetV1 at 300 x 300 has 2.9e6 numbers, all have 41e6; it takes
# 1.2e9 multiplications.
MOST_VALUES = 1 << 24
_MOST_ALTOGETHER = 1 << 28
_MOST_WORK = 1 << 36


class GraphRun:
    """The values of a graph's nodes, each computed when it is asked for.

    Parameters
    ----------
    nodes : iterable of Node
    feeds : mapping of str to Tensor
        Values that are given instead of computed, such as the image.
    """

    def __init__(
        self, nodes: Iterable[Node], feeds: Mapping[str, torch.Tensor] | None = None
    ) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.values: dict[str, torch.Tensor] = dict(feeds or {})
        self._held = self._work = 0

    def value(self, name: str) -> torch.Tensor:
        """Return a node's first output.

        Raises
        ------
        MigrateError
            If it depends on something that was not fed, or on an operator that is not run here.
        """
        wanted = [plain_name(name)]
        waiting: set[str] = set()
        while wanted:
            name = wanted[-1]
            if name in self.values:
                wanted.pop()
                continue
            node = self.nodes.get(name)
            if node is None:
                raise MigrateError(f"no node {name[:100]!r}", "the graph", "check the file")
            inputs = [plain_name(i) for i in node.inputs if not i.startswith("^")]
            missing = [i for i in inputs if i not in self.values]
            if missing:
                if name in waiting:
                    raise MigrateError(f"{name[:100]!r} depends on itself", "the graph", "")
                waiting.add(name)
                wanted += missing
                continue
            self.values[name] = self._run(node, [self.values[i] for i in inputs])
            wanted.pop()
        return self.values[name]

    def _run(self, node: Node, inputs: list[torch.Tensor]) -> torch.Tensor:
        if node.op == "Const" and node.tensor is not None:
            count = node.tensor.nbytes // node.tensor.dtype.itemsize
            if count > MOST_VALUES:
                raise MigrateError(f"{count:,} values", node.name[:100], "check the file")
            return node.tensor.read()
        if node.op not in _OPERATORS:
            raise MigrateError(f"the operator {node.op[:40]!r} is not run here", node.name[:100])
        if str(node.attrs.get("data_format", "NHWC")) != "NHWC":
            raise MigrateError("the graph has the layout NCHW", node.name[:100])
        self._spend(node, inputs)
        try:
            value = _OPERATORS[node.op](node.attrs, *inputs)
        except (RuntimeError, TypeError, ValueError, IndexError, ArithmeticError) as error:
            raise MigrateError(
                f"{node.op} cannot run: {str(error)[:200]}", node.name[:100], "check the file"
            ) from error
        return value

    def _spend(self, node: Node, inputs: list[torch.Tensor]) -> None:
        """Stop before a graph takes more memory or time than any network of its kind."""
        if node.op in _CONVOLUTIONS and len(inputs) == 2:
            self._work += inputs[0].numel() * inputs[1].numel() // max(1, inputs[0].shape[-1])
        self._held += max((x.numel() for x in inputs), default=0)
        if self._held > _MOST_ALTOGETHER or self._work > _MOST_WORK:
            raise MigrateError(
                f"{self._held:,} values and {self._work:,} multiplications",
                node.name[:100],
                "the graph is larger than any network of its kind",
            )


def plain_name(name: str) -> str:
    """Return the node an input names: without ``^`` and the number of the output."""
    return name.removeprefix("^").partition(":")[0]


def _padded(x: torch.Tensor, attrs: Mapping[str, Any], kernel: tuple[int, ...]) -> torch.Tensor:
    """Return an image (b, c, h, w), padded as the operator asks."""
    x = x.permute(0, 3, 1, 2)
    if attrs.get("padding") == "VALID":
        return x
    if attrs.get("padding") != "SAME":
        raise ValueError(f"padding {attrs.get('padding')!r}")
    strides = attrs["strides"][1:3]
    down, right = (
        _sides(length, size, stride)
        for length, size, stride in zip(x.shape[2:], kernel, strides, strict=True)
    )
    _few(x.shape[:2].numel() * (x.shape[2] + sum(down)) * (x.shape[3] + sum(right)))
    return F.pad(x, (*right, *down))


def _sides(length: int, size: int, stride: int) -> tuple[int, int]:
    # As TensorFlow's documentation writes it, and not with the network's own same_padding: what
    # proves it must not share its mistakes.
    total = max(size - (length % stride or stride), 0)
    return total // 2, total - total // 2


def _few(count: int) -> None:
    if count > MOST_VALUES:
        raise ValueError(f"{count:,} values")


def _conv(attrs: Mapping[str, Any], x: torch.Tensor, kernel: torch.Tensor) -> torch.Tensor:
    _check(attrs, kernel)
    padded = _padded(x, attrs, tuple(kernel.shape[:2]))
    down, right = attrs["strides"][1:3]
    _few((padded.shape[2] // down + 1) * (padded.shape[3] // right + 1) * kernel.shape[3])
    y = F.conv2d(padded, kernel.permute(3, 2, 0, 1), stride=(down, right))
    return y.permute(0, 2, 3, 1)


def _depthwise(attrs: Mapping[str, Any], x: torch.Tensor, kernel: torch.Tensor) -> torch.Tensor:
    _check(attrs, kernel)
    padded = _padded(x, attrs, tuple(kernel.shape[:2]))
    height, width, channels, times = kernel.shape
    # Height, width, channel, multiplier: output c * multiplier + m is of channel c.
    weight = kernel.permute(2, 3, 0, 1).reshape(channels * times, 1, height, width)
    y = F.conv2d(padded, weight, stride=tuple(attrs["strides"][1:3]), groups=channels)
    return y.permute(0, 2, 3, 1)


def _check(attrs: Mapping[str, Any], kernel: torch.Tensor) -> None:
    if kernel.ndim != 4 or len(attrs.get("strides", ())) != 4:
        raise ValueError("no four strides, or no kernel of four axes")
    if min(attrs["strides"]) < 1 or set(attrs.get("dilations", (1,))) != {1}:
        raise ValueError(f"strides {attrs['strides']}, dilations {attrs.get('dilations')}")


def _norm(
    attrs: Mapping[str, Any],
    x: torch.Tensor,
    *parameters: torch.Tensor,
) -> torch.Tensor:
    gamma, beta, mean, variance = parameters
    if attrs.get("is_training", False):
        raise ValueError("it normalizes with the batch's own statistics")
    return (x - mean) / torch.sqrt(variance + attrs.get("epsilon", 1e-4)) * gamma + beta


def _elementwise(
    run: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> Callable[..., torch.Tensor]:
    def checked(_attrs: Mapping[str, Any], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        # A row times a column is a table: its size is asked for first.
        _few(torch.broadcast_shapes(x.shape, y.shape).numel())
        return run(x, y)

    return checked


def _same(_attrs: Mapping[str, Any], x: torch.Tensor, *_rest: torch.Tensor) -> torch.Tensor:
    return x


_CONVOLUTIONS = ("Conv2D", "DepthwiseConv2dNative")
_OPERATORS: dict[str, Callable[..., torch.Tensor]] = {
    "Add": _elementwise(torch.add),
    "AddV2": _elementwise(torch.add),
    "BiasAdd": _elementwise(torch.add),
    "Conv2D": _conv,
    "DepthwiseConv2dNative": _depthwise,
    "FusedBatchNorm": _norm,
    "FusedBatchNormV2": _norm,
    "FusedBatchNormV3": _norm,
    "Identity": _same,
    "Mul": _elementwise(torch.mul),
    "Relu": lambda _, x: x.relu(),
    "Relu6": lambda _, x: x.clamp(0, 6),
    "Rsqrt": lambda _, x: x.rsqrt(),
    "StopGradient": _same,
    "Sub": _elementwise(torch.sub),
}
