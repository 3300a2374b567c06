"""Position embeddings of another grid: resized as timm resizes them, where the caller allows it."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from migrate_kit.checkpoints.sides import Piece, Shape

_NAMES = re.compile(
    r"(?:^|[._])(?:pos|position|positional|relative_position)(?:[._]|$)|(?:^|\.)wpe\."
)
# Class and distillation token stand before the grid.
_MOST_TOKENS = 2


def is_position_embedding(name: str) -> bool:
    """Whether the name is one of a position embedding's.

    Examples
    --------
    >>> is_position_embedding("encoder.pos_embedding"), is_position_embedding("composer.weight")
    (True, False)
    """
    return _NAMES.search(name) is not None


def resized(piece: Piece, shape: Shape) -> Piece | None:
    """Return the piece with its grid resized to ``shape``, or None where it holds no square grid.

    The grid is resized bicubically, with antialias, in float32; tokens before it stay.
    """
    if len(piece.shape) == len(shape) == 4:
        if piece.shape[:2] != shape[:2]:
            return None
        what = f"{_by(piece.shape[2:])} resized to {_by(shape[2:])}"
        return piece.turned(shape, lambda t: _resize(t, shape[2:]), what, "")
    axis = len(shape) - 2
    rest = len(piece.shape) == len(shape) in (2, 3) and (
        piece.shape[:axis] == shape[:axis] in ((), (1,)) and piece.shape[-1] == shape[-1]
    )
    if not rest:
        return None
    for tokens in range(_MOST_TOKENS + 1):
        old, new = (math.isqrt(max(0, s[axis] - tokens)) for s in (piece.shape, shape))
        if old and new and (old**2 + tokens, new**2 + tokens) == (piece.shape[axis], shape[axis]):
            break
    else:
        return None

    def turn(tensor: torch.Tensor) -> torch.Tensor:
        flat = tensor.reshape(-1, shape[-1])
        head, grid = flat[:tokens], flat[tokens:]
        image = grid.reshape(1, old, old, -1).permute(0, 3, 1, 2)
        image = _resize(image, (new, new)).permute(0, 2, 3, 1).reshape(new * new, -1)
        return torch.cat([head, image]).reshape(shape)

    before = f", {tokens} token before it kept" if tokens == 1 else ""
    before = f", {tokens} tokens before it kept" if tokens > 1 else before
    rule = f"grid of {old} by {old} resized to {new} by {new}{before}"
    return piece.turned(shape, turn, rule, "bicubic with antialias, as timm does")


def _resize(image: torch.Tensor, size: tuple[int, ...]) -> torch.Tensor:
    image_ = image.float()
    larger = functional.interpolate(
        image_, list(size), mode="bicubic", antialias=True, align_corners=False
    )
    return larger.to(image.dtype)


def _by(shape: Shape) -> str:
    return " by ".join(map(str, shape))
