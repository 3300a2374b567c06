"""How a detail travels: the answer to one request, packed into one bytes value."""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from migrate_kit.widgets.detail import reduce_pair

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

    from migrate_kit.layers.rows import LayerRow
    from migrate_kit.widgets.detail import Arrays, Limits

MAX_BYTES = 1_000_000
MAX_NAME = 400


class Diff(Protocol):
    """What a comparison must offer to be shown."""

    @property
    def rows(self) -> Sequence[LayerRow]:
        """One line a layer."""

    def tensors(self, i: int, /) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Return reference and candidate of row ``i``; None where none was kept."""


def answer(diff: Diff, row: int, number: int, limits: Limits | None = None) -> bytes:
    """Return the packed detail of ``diff.rows[row]`` as the answer to request ``number``.

    Never raises: whatever goes wrong becomes a sentence, because an exception inside a widget
    callback is invisible to the reader.
    """
    head: dict[str, Any] = {"number": number, "row": row}
    try:
        if not 0 <= row < len(diff.rows):
            return pack({**head, "message": f"There is no row {row}."}, {})
        head["facts"] = facts_of(diff.rows[row])
        reference, candidate = diff.tensors(row)
        body, arrays = reduce_pair(reference, candidate, limits, diff.rows[row].channel)
        return pack({**head, **body}, arrays)
    except Exception as error:  # noqa: BLE001 - see the docstring
        why = shorten(f"{type(error).__name__}: {error}")
        return pack({**head, "message": f"This layer could not be read. {why}", "error": True}, {})


def facts_of(row: LayerRow) -> dict[str, Any]:
    """Return what the row itself says, with texts of a bounded length."""
    return {k: shorten(v) if isinstance(v, str) else v for k, v in row.to_dict().items()}


def shorten(text: str, limit: int = MAX_NAME) -> str:
    """Cut a long text in its middle, where layer names tell least."""
    half = limit // 2
    return text if len(text) <= limit else f"{text[:half]}…{text[-half:]}"


def pack(header: Mapping[str, Any], arrays: Arrays) -> bytes:
    """Join a JSON header and float32 arrays: length, header, padding, arrays.

    The header's ``arrays`` says where each begins, counted in floats behind the padding.
    """
    where: dict[str, list[int]] = {}
    data: list[bytes] = []
    at = 0
    for name, array in arrays.items():
        flat = np.ascontiguousarray(array, dtype="<f4")
        where[name] = [at, *flat.shape]
        data.append(flat.tobytes())
        at += flat.size
    text = json.dumps({**header, "arrays": where}, allow_nan=False).encode()
    text += b" " * (-(len(text) + 4) % 4)
    packed = struct.pack("<I", len(text)) + text + b"".join(data)
    if len(packed) > MAX_BYTES:
        short = {k: header[k] for k in ("number", "row") if k in header}
        return pack({**short, "message": "The answer was too large to send.", "error": True}, {})
    return packed


def unpack(packed: bytes) -> tuple[dict[str, Any], Arrays]:
    """Return what :func:`pack` was given; what the browser does, in Python."""
    (size,) = struct.unpack_from("<I", packed)
    header = json.loads(packed[4 : 4 + size])
    floats = np.frombuffer(packed, dtype="<f4", offset=4 + size)
    arrays: Arrays = {}
    for name, (at, *shape) in header.pop("arrays").items():
        arrays[name] = floats[at : at + int(np.prod(shape))].reshape(shape)
    return header, arrays
