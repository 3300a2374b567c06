"""Layers of Darknet that torch does not have, or has otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

if TYPE_CHECKING:
    from collections.abc import Callable


def _positive(x: torch.Tensor) -> torch.Tensor:
    """Divide what is positive by its sum over the channels."""
    kept = x.relu()
    return kept / (kept.sum(1, keepdim=True) + 1e-4)


def _softmax(x: torch.Tensor) -> torch.Tensor:
    raised = x.exp()
    return raised / (raised.sum(1, keepdim=True) + 1e-4)


def _softmax_of_rest(x: torch.Tensor) -> torch.Tensor:
    return _softmax(x - x.amax(1, keepdim=True))


def _stair(x: torch.Tensor) -> torch.Tensor:
    whole = x.floor()
    return torch.where(whole % 2 == 0, (x / 2).floor(), x - whole + (x / 2).floor())


def _plse(x: torch.Tensor) -> torch.Tensor:
    middle = 0.125 * x + 0.5
    return torch.where(x < -4, 0.01 * (x + 4), torch.where(x > 4, 0.01 * (x - 4) + 1, middle))


def _lhtan(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x < 0, 0.001 * x, torch.where(x > 1, 0.001 * (x - 1) + 1, x))


def _hard_mish(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x > 0, x, torch.where(x > -2, x * x / 2 + x, 0))


def _gelu(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1 + torch.tanh(0.797885 * x + 0.035677 * x**3))


def _selu(x: torch.Tensor) -> torch.Tensor:
    return 1.0507 * torch.where(x >= 0, x, 1.6732 * (x.exp() - 1))


# The constants are those of Darknet's activations.h, which rounds some of them.
_FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": _gelu,
    "hard_mish": _hard_mish,
    "hardtan": F.hardtanh,
    "lhtan": _lhtan,
    "loggy": lambda x: 2 * x.sigmoid() - 1,
    "normalize_channels": _positive,
    "normalize_channels_softmax": _softmax,
    "normalize_channels_softmax_maxval": _softmax_of_rest,
    "plse": _plse,
    "ramp": lambda x: x.relu() + 0.1 * x,
    "selu": _selu,
    "stair": _stair,
}


def activation(name: str) -> nn.Module:
    """Return one of Darknet's activations as a module."""
    if name in ("leaky", "revleaky", "relie"):
        return nn.LeakyReLU(0.01 if name == "relie" else 0.1)
    known = {
        "linear": nn.Identity,
        "relu": nn.ReLU,
        "relu6": nn.ReLU6,
        "logistic": nn.Sigmoid,
        "mish": nn.Mish,
        "swish": nn.SiLU,
        "tanh": nn.Tanh,
        "elu": nn.ELU,
    }
    return known[name]() if name in known else Activation(name)


class Activation(nn.Module):
    """An activation that torch has no module for."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the activations."""
        return _FUNCTIONS[self.name](x)

    def extra_repr(self) -> str:
        """Return what ``repr`` shows."""
        return self.name


class MaxPool(nn.Module):
    """Max pooling whose padding is smaller in front than behind, and never wins.

    Zeros instead of minus infinity would win over negative values.
    """

    def __init__(self, size: int, stride: tuple[int, int], padding: int) -> None:
        super().__init__()
        self.size, self.stride = size, stride
        self.front, self.behind = padding // 2, padding - padding // 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the maxima."""
        edges = (self.front, self.behind) * 2
        return F.max_pool2d(F.pad(x, edges, value=float("-inf")), self.size, self.stride)

    def extra_repr(self) -> str:
        """Return what ``repr`` shows."""
        return f"{self.size}, stride={self.stride}, padding=({self.front}, {self.behind})"


class Reorg(nn.Module):
    """``[reorg]``: pixels to channels in the order of Darknet's C code.

    It reads its input as if that had fewer channels and more pixels; ``pixel_unshuffle`` and the
    ``[reorg3d]`` of later Darknets give the same shape and other values.
    """

    def __init__(self, stride: int) -> None:
        super().__init__()
        self.stride = stride

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``(b, c s s, h / s, w / s)``."""
        (b, c, h, w), s = x.shape, self.stride
        x = x.reshape(b, c // (s * s), h, s, w, s).permute(0, 3, 5, 1, 2, 4)
        return x.reshape(b, c * s * s, h // s, w // s)


class Reorg3d(Reorg):
    """``[reorg3d]``: pixels to channels, the offset before the channel."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``(b, s s c, h / s, w / s)``."""
        (b, c, h, w), s = x.shape, self.stride
        x = x.reshape(b, c, h // s, s, w // s, s).permute(0, 3, 5, 1, 2, 4)
        return x.reshape(b, c * s * s, h // s, w // s)


class Upsample(nn.Module):
    """Nearest upsampling, with a factor."""

    def __init__(self, stride: int, scale: float) -> None:
        super().__init__()
        self.stride, self.scale = stride, scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the larger image."""
        larger = F.interpolate(x, scale_factor=self.stride, mode="nearest")
        return larger if self.scale == 1 else larger * self.scale


class AvgPool(nn.Module):
    """The mean of each channel."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return ``(b, c, 1, 1)``."""
        return x.mean((2, 3), keepdim=True)


class Route(nn.Module):
    """Layers side by side, or one group of each one's channels."""

    def __init__(self, groups: int, group: int) -> None:
        super().__init__()
        self.groups, self.group = groups, group

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Return the chosen channels."""
        if self.groups > 1:
            inputs = tuple(x.chunk(self.groups, 1)[self.group] for x in inputs)
        return torch.cat(inputs, 1) if len(inputs) > 1 else inputs[0]


class Shortcut(nn.Module):
    """The sum of layers; of those with other channels or sizes, the part in common."""

    def __init__(self, weights: tuple[int, ...] | None, normalization: str, after: str) -> None:
        super().__init__()
        self.weights = None if weights is None else nn.Parameter(torch.ones(weights))
        self.normalization = normalization
        self.activation = activation(after)

    def forward(self, x: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        """Return what has the shape of ``x``."""
        factors = self._factors()
        total = x.clone() if factors is None else x * factors[0]
        for index, other in enumerate(others, 1):
            channels = min(x.shape[1], other.shape[1])
            part = other[:, :channels]
            if factors is not None:
                part = part * (
                    factors[index] if factors.shape[1] == 1 else factors[index][:channels]
                )
            # Darknet's steps: over the larger image, in the smaller one's grid.
            over, inside = (max(1, b // a) for a, b in _widths(x, other))
            total[:, :channels, ::inside, ::inside] += part[:, :, ::over, ::over]
        return self.activation(total)  # type: ignore[no-any-return]

    def _factors(self) -> torch.Tensor | None:
        if self.weights is None:
            return None
        if self.normalization == "none":
            return self.weights
        if self.normalization == "relu":
            raised = self.weights.relu()
        else:
            raised = (self.weights - self.weights.amax(0, keepdim=True)).exp()
        return raised / (raised.sum(0, keepdim=True) + 1e-4)


def _widths(x: torch.Tensor, other: torch.Tensor) -> tuple[tuple[int, int], tuple[int, int]]:
    return (x.shape[3], other.shape[3]), (other.shape[3], x.shape[3])


class Scaled(nn.Module):
    """``[scale_channels]`` and ``[sam]``: one layer times another."""

    def __init__(self, after: str) -> None:
        super().__init__()
        self.activation = activation(after)

    def forward(self, scale: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Return the product."""
        return self.activation(x * scale)  # type: ignore[no-any-return]


class Softmax(nn.Module):
    """Softmax over everything, or over equal groups of it."""

    def __init__(self, groups: int, temperature: float) -> None:
        super().__init__()
        self.groups, self.temperature = groups, temperature

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return what sums to one in each group."""
        parts = x.reshape(len(x), self.groups, -1) / self.temperature
        return parts.softmax(2).reshape(x.shape)
