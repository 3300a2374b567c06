"""TensorFlow's padding ``SAME``: what is left over goes to the right and below."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812


def same_padding(length: int, kernel: int, stride: int) -> tuple[int, int]:
    """Return the padding before and after one axis.

    Examples
    --------
    PyTorch's ``padding=1`` would be (1, 1): the same output shape, and every window one pixel off.

    >>> same_padding(300, 3, 2)
    (0, 1)
    """
    total = max(0, (-(-length // stride) - 1) * stride + kernel - length)
    return total // 2, total - total // 2


class SameConv2d(nn.Conv2d):
    """A convolution that pads as TensorFlow does."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the convolution."""
        down = same_padding(x.shape[2], self.kernel_size[0], self.stride[0])
        right = same_padding(x.shape[3], self.kernel_size[1], self.stride[1])
        return super().forward(F.pad(x, (*right, *down)))
