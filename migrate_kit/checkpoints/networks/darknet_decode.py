"""From the raw outputs of a Darknet head to boxes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from migrate_kit.errors import MigrateError

if TYPE_CHECKING:
    from collections.abc import Mapping


def decode_head(
    raw: torch.Tensor, settings: Mapping[str, Any], kind: str, image: tuple[int, int]
) -> torch.Tensor:
    """Return the boxes of one head.

    Parameters
    ----------
    raw : Tensor
        ``(b, anchors * (5 + classes), h, w)``, as the last convolution gives it.
    settings : mapping
        ``anchors``, ``classes`` and what else the layer's section says.
    kind : str
        ``yolo`` or ``region``.
    image : (int, int)
        Height and width of the network's input: the unit of a ``yolo`` head's anchors. Those of a
        ``region`` head are counted in cells.

    Returns
    -------
    Tensor
        ``(b, h * w * anchors, 5 + classes)``: centre x and y, width and height as parts of the
        image, whether there is something, and each class's probability if there is. The boxes are
        in the order of Darknet and OpenCV: row, column, anchor.
    """
    if settings["tree"]:
        raise MigrateError(
            "the classes of this head are a tree, which is not decoded",
            f"[{kind}], tree=",
            "use the raw outputs",
        )
    batch, _, rows, columns = raw.shape
    anchors = torch.tensor(settings["anchors"], dtype=raw.dtype, device=raw.device)
    raw = raw.reshape(batch, len(anchors), -1, rows, columns).permute(0, 3, 4, 1, 2)
    # With new_coords the convolution before has the logistic function already.
    squashed = raw if settings["new_coords"] and kind == "yolo" else raw.sigmoid()
    cells = torch.tensor([columns, rows], dtype=raw.dtype, device=raw.device)
    down = torch.arange(rows, dtype=raw.dtype, device=raw.device)[:, None, None]
    right = torch.arange(columns, dtype=raw.dtype, device=raw.device)[None, :, None]
    centre = squashed[..., :2]
    if kind == "yolo":
        unit = torch.tensor([image[1], image[0]], dtype=raw.dtype, device=raw.device)
        scale = settings["scale_x_y"]
        centre = centre * scale - 0.5 * (scale - 1)
        classes = squashed[..., 5:]
    else:
        unit = cells
        classes = raw[..., 5:].softmax(-1) if settings["softmax"] else raw[..., 5:]
    corner = torch.stack(torch.broadcast_tensors(right, down), -1)
    size = 4 * raw[..., 2:4] ** 2 if squashed is raw else raw[..., 2:4].exp()
    parts = ((centre + corner) / cells, size * anchors / unit, squashed[..., 4:5], classes)
    return torch.cat(parts, -1).reshape(batch, rows * columns * len(anchors), -1)
