"""SSD on MobileNetV1, with the parameter names of the MLPerf reference.

Not tried on the original ``frozen_inference_graph.pb``: no public copy of it could be had. The
names and shapes are those that the reference converts.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import nn

from migrate_kit.checkpoints.networks.same_padding import SameConv2d

if TYPE_CHECKING:
    from collections.abc import Sequence

SIZE = 300
# The blocks that halve the image, and those whose output a predictor sees.
_HALVING = (0, 2, 4, 6, 12)
SEEN = (11, 13)


@dataclass(frozen=True)
class Sizes:
    """The channels of an SSD, and what its predictors predict.

    Attributes
    ----------
    backbone : sequence of int
        Of the first convolution and each of the 13 blocks.
    extras : sequence of (int, int)
        Of both convolutions of each further block.
    anchors : sequence of int
        Boxes a place, one number a predictor.
    classes : int
        With the background.
    """

    backbone: Sequence[int] = (32, 64, 128, 128, 256, 256, *[512] * 6, 1024, 1024)
    extras: Sequence[tuple[int, int]] = ((256, 512), (128, 256), (128, 256), (64, 128))
    anchors: Sequence[int] = (3, 6, 6, 6, 6, 6)
    classes: int = 91


class BiasAdd(nn.Module):
    """What is left of a batch normalization whose scale is in the weights before it."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("bias", torch.zeros(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum."""
        return x + self.get_buffer("bias")[:, None, None]


def _first(channels: int) -> nn.Sequential:
    layers: dict[str, nn.Module] = {
        "0": SameConv2d(3, channels, 3, 2, bias=False),
        "0/BatchNorm": BiasAdd(channels),
        "0/ReLU": nn.ReLU6(),
    }
    return nn.Sequential(OrderedDict(layers))


def _block(before: int, after: int, stride: int) -> nn.Sequential:
    layers: dict[str, nn.Module] = {
        "depthwise": SameConv2d(before, before, 3, stride, groups=before, bias=False),
        "depthwise/BatchNorm": nn.BatchNorm2d(before),
        "depthwise/ReLU": nn.ReLU6(),
        "pointwise": nn.Conv2d(before, after, 1, bias=False),
        "pointwise/BatchNorm": BiasAdd(after),
        "pointwise/ReLU": nn.ReLU6(),
    }
    return nn.Sequential(OrderedDict(layers))


class _Predictor(nn.Module):
    def __init__(self, channels: int, anchors: int, classes: int) -> None:
        super().__init__()
        self.classification = nn.Conv2d(channels, anchors * classes, 1)
        self.regression = nn.Conv2d(channels, anchors * 4, 1)
        self.classes = classes

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        boxes = self.regression(x).permute(0, 2, 3, 1).reshape(len(x), -1, 4)
        classes = self.classification(x).permute(0, 2, 3, 1).reshape(len(x), -1, self.classes)
        return boxes, classes


class SSDMobileNetV1(nn.Module):
    """The network up to its raw predictions; anchors and suppression come after it.

    ``depthwise/BatchNorm`` is ``nn.BatchNorm2d``, as the vendor's guide makes it; the other two are
    biases, because the published graph has their scale in the weights.
    """

    def __init__(self, sizes: Sizes | None = None) -> None:
        super().__init__()
        sizes = sizes or Sizes()
        widths = sizes.backbone
        blocks = [
            _block(before, after, 2 if index in _HALVING else 1)
            for index, (before, after) in enumerate(pairwise(widths), 1)
        ]
        self.backbone = nn.ModuleList([_first(widths[0]), *blocks])
        seen = [widths[index] for index in SEEN]
        self.extras = nn.ModuleList()
        for middle, after in sizes.extras:
            first, second = nn.Conv2d(seen[-1], middle, 1), SameConv2d(middle, after, 3, 2)
            self.extras.append(nn.Sequential(first, nn.ReLU6(), second, nn.ReLU6()))
            seen.append(after)
        self.predictors = nn.ModuleList(
            _Predictor(channels, anchors, sizes.classes)
            for channels, anchors in zip(seen, sizes.anchors, strict=True)
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the encoded boxes ``(b, n, 4)`` and the class logits ``(b, n, classes)``.

        Parameters
        ----------
        x : Tensor
            ``(b, 3, 300, 300)``, RGB, ``(value - 127.5) / 127.5``.
        """
        maps = []
        for index, block in enumerate(self.backbone):
            x = block(x)
            if index in SEEN:
                maps.append(x)
        for extra in self.extras:
            x = extra(x)
            maps.append(x)
        found = [predictor(m) for predictor, m in zip(self.predictors, maps, strict=True)]
        boxes, classes = zip(*found, strict=True)
        return torch.cat(boxes, 1), torch.cat(classes, 1)
