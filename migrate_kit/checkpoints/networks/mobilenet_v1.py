"""MobileNetV1 for classification, under the two sets of names its public checkpoints have."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Channels of the first convolution and the 13 blocks, at full width; which of them halve.
_WIDTHS = (32, 64, 128, 128, 256, 256, *[512] * 6, 1024, 1024)
_HALVING = (0, 2, 4, 6, 12)
# After which blocks RetinaFace's backbone ends a stage.
_STAGES = (0, 6, 12, 14)


class MobileNetV1(nn.Module):
    """The network of marvis's pytorch-mobilenet: ``model.<block>.<layer>`` and ``fc``."""

    def __init__(self, widths: Sequence[int] = _WIDTHS, classes: int = 1000) -> None:
        super().__init__()
        blocks = _blocks(widths, nn.ReLU())
        self.model = nn.Sequential(*blocks, nn.AvgPool2d(7))
        self.fc = nn.Linear(widths[-1], classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the classes' logits.

        Parameters
        ----------
        x : Tensor
            ``(b, 3, 224, 224)``.
        """
        return self.fc(self.model(x).flatten(1))  # type: ignore[no-any-return]


class StagedMobileNetV1(nn.Module):
    """The network of RetinaFace's backbone: ``stage1`` to ``stage3`` and ``fc``."""

    def __init__(self, widths: Sequence[int], classes: int = 1000) -> None:
        super().__init__()
        blocks = _blocks(widths, nn.LeakyReLU(0.1))
        stages = [nn.Sequential(*blocks[a:b]) for a, b in pairwise(_STAGES)]
        self.stage1, self.stage2, self.stage3 = stages
        self.avg = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(widths[-1], classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the classes' logits."""
        x = self.stage3(self.stage2(self.stage1(x)))
        return self.fc(self.avg(x).flatten(1))  # type: ignore[no-any-return]


def _blocks(widths: Sequence[int], activation: nn.Module) -> list[nn.Sequential]:
    blocks = [
        nn.Sequential(
            nn.Conv2d(3, widths[0], 3, 2, 1, bias=False), nn.BatchNorm2d(widths[0]), activation
        )
    ]
    for index, (before, after) in enumerate(pairwise(widths), 1):
        stride = 2 if index in _HALVING else 1
        blocks.append(
            nn.Sequential(
                nn.Conv2d(before, before, 3, stride, 1, groups=before, bias=False),
                nn.BatchNorm2d(before),
                activation,
                nn.Conv2d(before, after, 1, bias=False),
                nn.BatchNorm2d(after),
                activation,
            )
        )
    return blocks


def network_of(state: Mapping[str, torch.Tensor]) -> nn.Module | None:
    """Return the network that a state_dict fits, or None."""
    names = {
        "model": [f"model.{n}" for n in range(14)],
        "stage1": [
            f"stage{stage}.{n - start}"
            for stage, (start, end) in enumerate(pairwise(_STAGES), 1)
            for n in range(start, end)
        ],
    }
    for prefix, blocks in names.items():
        last = [f"{blocks[0]}.0.weight", *(f"{block}.3.weight" for block in blocks[1:])]
        if not all(name in state for name in (*last, "fc.weight")):
            continue
        widths = [len(state[name]) for name in last]
        network: nn.Module
        # Only shapes: the tensors take the place of these.
        with torch.device("meta"):
            kind = MobileNetV1 if prefix == "model" else StagedMobileNetV1
            network = kind(widths, len(state["fc.weight"]))
        wanted = network.state_dict()
        optional = {name for name in wanted if name.endswith("num_batches_tracked")}
        if (
            set(state) <= set(wanted)
            and set(wanted) - optional <= set(state)
            and all(state[name].shape == wanted[name].shape for name in state)
        ):
            return network
    return None
