"""MTCNN's cascade: from an image to the boxes and points of its faces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812

from migrate_kit.errors import MigrateError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from migrate_kit.checkpoints.networks.mtcnn import MTCNN

    Array = NDArray[np.float64]

_STRIDE, _WINDOW = 2, 12
_MOST_CANDIDATES = 5000
_BLACK = -127.5 / 128


class Faces(NamedTuple):
    """The faces of an image, the surest first.

    Attributes
    ----------
    boxes : array
        ``(n, 4)``: left, top, right, bottom.
    scores : array
        ``(n,)``.
    points : array
        ``(n, 5, 2)``: x and y of both eyes, the nose, and both corners of the mouth.
    """

    boxes: Array
    scores: Array
    points: Array


def detect_faces(
    networks: MTCNN,
    image: Any,
    *,
    smallest: float = 20.0,
    factor: float = 0.709,
    proposal: float = 0.6,
    refined: float = 0.7,
    final: float = 0.7,
) -> Faces:
    """Find the faces of an image.

    Parameters
    ----------
    networks : MTCNN
    image : array
        ``(height, width, 3)``, RGB, 0 to 255.
    smallest : float
        The height of the smallest face that is looked for, in pixels.
    factor : float
        From one size of the pyramid to the next.
    proposal, refined, final : float
        How sure each network has to be.

    Returns
    -------
    Faces
    """
    pixels = np.asarray(image)
    if pixels.ndim != 3 or pixels.shape[2] != 3 or not 0 < factor < 1 or smallest <= 0:
        raise MigrateError(
            f"an image of the shape {pixels.shape}",
            "detect_faces()",
            "pass height x width x 3 (RGB, 0 to 255), smallest above 0 and factor below 1",
        )
    x = torch.from_numpy(np.ascontiguousarray(pixels, dtype=np.float32)).permute(2, 0, 1)[None]
    x = (x - 127.5) / 128
    with torch.no_grad():
        boxes = _proposals(networks, x, smallest, factor, proposal)
        boxes = _refined(networks, x, boxes, refined)
        return _outputs(networks, x, boxes, final)


def _proposals(
    networks: MTCNN, x: torch.Tensor, smallest: float, factor: float, least: float
) -> Array:
    """Return candidates as rows of left, top, right, bottom, score."""
    height, width = x.shape[2:]
    found = [np.empty((0, 5))]
    scale = _WINDOW / smallest
    while min(height, width) * scale >= _WINDOW:
        size = (int(np.ceil(height * scale)), int(np.ceil(width * scale)))
        offsets, scores = networks.pnet(_resized(x, size))
        score = scores[0, 1].double().numpy()
        rows, columns = np.nonzero(score > least)
        corner = np.stack([columns, rows], 1) * _STRIDE
        boxes = np.concatenate([corner, corner + _WINDOW - 1], 1) / scale
        boxes = _moved(boxes, offsets[0].double().numpy()[:, rows, columns].T)
        boxes = np.column_stack([boxes, score[rows, columns]])
        found.append(boxes[_best(boxes, 0.5)])
        scale *= factor
    boxes = np.concatenate(found)
    return _squared(boxes[_best(boxes, 0.7)])


def _refined(networks: MTCNN, x: torch.Tensor, boxes: Array, least: float) -> Array:
    if not len(boxes):
        return boxes
    offsets, scores = networks.rnet(_crops(x, boxes, networks.rnet.size))
    score = scores[:, 1].double().numpy()
    keep = score > least
    boxes = _moved(boxes[keep, :4], offsets.double().numpy()[keep])
    boxes = np.column_stack([boxes, score[keep]])
    return _squared(boxes[_best(boxes, 0.7)])


def _outputs(networks: MTCNN, x: torch.Tensor, boxes: Array, least: float) -> Faces:
    if not len(boxes):
        return Faces(np.empty((0, 4)), np.empty(0), np.empty((0, 5, 2)))
    points, offsets, scores = networks.onet(_crops(x, boxes, networks.onet.size))
    score = scores[:, 1].double().numpy()
    keep = score > least
    corner, size = boxes[keep, None, :2], (boxes[keep, 2:4] - boxes[keep, :2] + 1)[:, None]
    places = points.double().numpy()[keep].reshape(-1, 2, 5).transpose(0, 2, 1) * size + corner
    found = _moved(boxes[keep, :4], offsets.double().numpy()[keep])
    best = _best(np.column_stack([found, score[keep]]), 0.7, of_smaller=True)
    return Faces(found[best], score[keep][best], places[best])


def _resized(x: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    return F.interpolate(x, size=size, mode="area")


def _moved(boxes: Array, offsets: Array) -> Array:
    """Move each side by its offset, a part of the box's width or height."""
    size = boxes[:, 2:4] - boxes[:, :2] + 1
    return boxes[:, :4] + offsets * np.tile(size, 2)


def _squared(boxes: Array) -> Array:
    """Make boxes square around their centres."""
    size = boxes[:, 2:4] - boxes[:, :2]
    side = size.max(1, keepdims=True)
    corner = boxes[:, :2] + (size - side) / 2
    return np.concatenate([corner, corner + side, boxes[:, 4:]], 1)


def _crops(x: torch.Tensor, boxes: Array, size: int) -> torch.Tensor:
    """Cut boxes out; what of them lies outside of the image is black."""
    height, width = x.shape[2:]
    crops = []
    for left, top, right, bottom in np.round(boxes[:, :4]).astype(int):
        crop = torch.full((1, 3, max(1, bottom - top + 1), max(1, right - left + 1)), _BLACK)
        inside = x[:, :, max(0, top) : bottom + 1, max(0, left) : right + 1]
        if left < width and top < height and inside.numel():
            y, z = max(0, -top), max(0, -left)
            crop[:, :, y : y + inside.shape[2], z : z + inside.shape[3]] = inside
        crops.append(_resized(crop, (size, size)))
    return torch.cat(crops)


def _best(boxes: Array, most: float, *, of_smaller: bool = False) -> NDArray[np.intp]:
    """Return which boxes no surer one covers by more than a part of both, or of the smaller."""
    order = np.argsort(-boxes[:, 4], kind="stable")[:_MOST_CANDIDATES]
    area = (boxes[:, 2] - boxes[:, 0] + 1) * (boxes[:, 3] - boxes[:, 1] + 1)
    kept = []
    while len(order):
        first, rest = order[0], order[1:]
        kept.append(first)
        corner = np.maximum(boxes[first, :2], boxes[rest, :2])
        common = np.minimum(boxes[first, 2:4], boxes[rest, 2:4]) - corner + 1
        shared = np.maximum(common, 0).prod(1)
        both = (
            np.minimum(area[first], area[rest]) if of_smaller else area[first] + area[rest] - shared
        )
        order = rest[shared / both <= most]
    return np.array(kept, dtype=np.intp)
