"""A copy of a network in which no two parameters are alike, so that a wrong place shows."""

from __future__ import annotations

import copy
import math

import torch

SEED = 20260


def randomized(model: torch.nn.Module) -> torch.nn.Module:
    """Return a copy in eval mode with random parameters and statistics.

    Weights as they come hide a wrong map: a new network's BatchNorm changes nothing, its layer
    scales are 1e-6 and its heads all zeros. Weights are scaled by ``1 / sqrt(fan_in)``, so that
    values neither grow nor vanish.
    """
    other = copy.deepcopy(model).eval()
    generator = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for name, p in other.named_parameters():
            fill(name, p, generator)
        for name, b in other.named_buffers():
            leaf = name.rpartition(".")[2]
            if leaf in ("running_mean", "running_var"):
                fill(leaf, b, generator)
    return other


def fill(name: str, tensor: torch.Tensor, generator: torch.Generator) -> None:
    """Fill one tensor by what its name and shape say it is."""
    if not tensor.is_floating_point():
        return
    leaf = name.rpartition(".")[2]
    noise = torch.randn(tensor.shape, generator=generator)
    if leaf == "running_var" or (tensor.dim() == 1 and leaf == "weight"):
        value = 0.5 + torch.rand(tensor.shape, generator=generator)
    elif tensor.dim() < 2 or leaf in ("bias", "running_mean"):
        value = 0.1 * noise
    else:
        value = noise / math.sqrt(max(1, tensor[0].numel()))
    tensor.copy_(value.to(tensor.dtype))
