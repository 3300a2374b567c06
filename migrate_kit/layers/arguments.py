"""Nested arguments and results: walk them, and write them as JSON with tensors by key."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from migrate_kit.layers.store import DEEPEST, dtype_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def walk(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every tensor of a nested result with its path: ``[0]``, ``['key']``, ``.field``."""
    if isinstance(value, torch.Tensor):
        yield path, value
    elif depth > DEEPEST:  # objects may hold each other
        return
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from walk(item, f"{path}[{key!r}]", depth + 1)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from walk(item, f"{path}[{index}]", depth + 1)
    elif not isinstance(value, type | torch.nn.Module | ModuleType) and not callable(value):
        # Dataclasses and plain objects: outputs of detection and language models.
        for key, item in getattr(value, "__dict__", {}).items():
            yield from walk(item, f"{path}.{key}", depth + 1)


def encode_arguments(  # noqa: PLR0911 - one form a line
    value: Any, keep: Callable[[torch.Tensor, str], str | None], key: str, depth: int = 0
) -> Any:
    """Turn nested arguments into JSON; tensors become the key they are stored by.

    The forms are ``{"tensor": key, "dtype": ..., "shape": [...]}``, ``{"list"|"tuple": [...]}``,
    ``{"dict": [[k, v], ...]}``, ``{"value": scalar}``, ``{"dtype": name}`` and, for what cannot be
    written, ``{"opaque": type}``.
    """
    if isinstance(value, torch.Tensor):
        stored = keep(value, key)
        if stored is None:
            return {"opaque": "Tensor"}
        return tensor_leaf(stored, str(value.dtype).removeprefix("torch."), tuple(value.shape))
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": value}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if depth >= DEEPEST:
        return {"opaque": type(value).__name__}
    if type(value) in (list, tuple, torch.Size):
        form = "list" if isinstance(value, list) else "tuple"
        items = enumerate(value)
        return {form: [encode_arguments(v, keep, f"{key}[{i}]", depth + 1) for i, v in items]}
    if type(value) is dict:
        return {"dict": [[k, encode_arguments(v, keep, f"{key}[{k!r}]")] for k, v in value.items()]}
    return {"opaque": type(value).__name__}


def tensor_leaf(key: str, dtype: str, shape: tuple[int, ...]) -> dict[str, Any]:
    """Return the encoding of one tensor; its shape may be a view of the stored one's."""
    return {"tensor": key, "dtype": dtype, "shape": list(shape)}


def decode_arguments(encoded: Any, fetch: Callable[[dict[str, Any]], torch.Tensor]) -> Any:
    """Undo :func:`encode_arguments`; ``fetch(leaf)`` reads a tensor.

    Raises
    ------
    ValueError
        If an argument could not be written.
    """
    (form, content), *_ = encoded.items()
    if form == "tensor":
        return fetch(encoded)
    if form in ("list", "tuple"):
        items = [decode_arguments(v, fetch) for v in content]
        return items if form == "list" else tuple(items)
    if form == "dict":
        return {k: decode_arguments(v, fetch) for k, v in content}
    if form in ("value", "dtype"):
        return content if form == "value" else dtype_of(content)
    raise ValueError(f"an argument of type {content} was not kept")


def tensor_leaves(encoded: Any) -> list[dict[str, Any]]:
    """Return the encodings of all tensors inside encoded arguments, in order."""
    if isinstance(encoded, dict):
        if "tensor" in encoded:
            return [encoded]
        return [k for v in encoded.values() for k in tensor_leaves(v)]
    if isinstance(encoded, list):
        return [k for v in encoded for k in tensor_leaves(v)]
    return []
