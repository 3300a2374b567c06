"""MindSpore's tensors as torch's, without a copy and bit for bit, and back."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from migrate_kit.errors import MigrateError
from migrate_kit.layers.runners import mindspore_import
from migrate_kit.layers.store import DEEPEST

if TYPE_CHECKING:
    from collections.abc import Iterator

# MindSpore's name of a format, as str(tensor.dtype) gives it.
DTYPES = {
    "Bool": torch.bool,
    "Int8": torch.int8,
    "Int16": torch.int16,
    "Int32": torch.int32,
    "Int64": torch.int64,
    "UInt8": torch.uint8,
    "UInt16": torch.uint16,
    "UInt32": torch.uint32,
    "UInt64": torch.uint64,
    "Float16": torch.float16,
    "BFloat16": torch.bfloat16,
    "Float32": torch.float32,
    "Float64": torch.float64,
    "Complex64": torch.complex64,
    "Complex128": torch.complex128,
}
_FLOATING = ("Float16", "BFloat16", "Float32", "Float64")


def is_tensor(value: Any) -> bool:
    """Whether it is a MindSpore tensor that has values, in a format that torch has too."""
    # It is asked of every attribute; nobody has a tensor who has not imported MindSpore.
    kind = getattr(sys.modules.get("mindspore"), "Tensor", ())
    return isinstance(value, kind) and str(value.dtype) in DTYPES


def is_floating(tensor: Any) -> bool:
    """Whether a MindSpore tensor can have a gradient."""
    return str(tensor.dtype) in _FLOATING


def to_torch(tensor: Any) -> torch.Tensor:
    """Return a torch tensor over a MindSpore tensor's own memory, where that is the host's.

    Examples
    --------
    >>> from migrate_kit.layers.runners import mindspore_import
    >>> from migrate_kit.layers.runners.mindspore_values import to_torch
    >>> ms = mindspore_import.load()
    >>> to_torch(ms.Tensor([1.5, 2.5], ms.bfloat16))
    tensor([1.5000, 2.5000], dtype=torch.bfloat16)
    """
    if str(tensor.dtype) != "BFloat16":
        return torch.from_numpy(tensor.asnumpy())
    # NumPy has no bfloat16 of its own, and what MindSpore makes of it depends on NumPy's version.
    whole = tensor if tensor.is_contiguous() else tensor.contiguous()
    return torch.from_numpy(whole.view(mindspore_import.load().int16).asnumpy()).view(
        torch.bfloat16
    )


def to_mindspore(value: Any, depth: int = 0) -> Any:
    """Return nested arguments with every tensor and array as a MindSpore tensor of its own.

    Formats stay what they are: an int64 stays one, which Embedding takes, though labels of a loss
    have to be int32.

    Raises
    ------
    MigrateError
        If MindSpore has no such format, or the arguments are nested too deep.

    Examples
    --------
    >>> import torch
    >>> from migrate_kit.layers.runners.mindspore_values import to_mindspore
    >>> str(to_mindspore([torch.ones(2, dtype=torch.bfloat16)])[0].dtype)
    'BFloat16'
    """
    ms = mindspore_import.load()
    if depth > DEEPEST:
        raise MigrateError(
            f"the arguments are nested more than {DEEPEST} deep",
            "the network's inputs",
            "pass the tensors in plain lists, tuples or dicts",
        )
    if is_tensor(value):
        return to_mindspore(to_torch(value))
    if isinstance(value, torch.Tensor):
        return _from_torch(value, ms)
    if isinstance(value, np.ndarray):
        return ms.Tensor(np.array(value, order="C"))
    if isinstance(value, dict):
        return type(value)((k, to_mindspore(v, depth + 1)) for k, v in value.items())
    if isinstance(value, list | tuple):
        parts = [to_mindspore(v, depth + 1) for v in value]
        return value._make(parts) if hasattr(value, "_make") else type(value)(parts)
    return value


def _from_torch(tensor: torch.Tensor, ms: Any) -> Any:
    if tensor.layout != torch.strided or tensor.dtype not in DTYPES.values():
        raise MigrateError(
            f"MindSpore takes no {str(tensor.dtype).removeprefix('torch.')} tensor"
            f" of layout {str(tensor.layout).removeprefix('torch.')}",
            "the network's inputs",
            "convert it first: tensor.to_dense(), tensor.float()",
        )
    own = tensor.detach().cpu().resolve_conj().resolve_neg().clone().contiguous()
    if own.dtype == torch.bfloat16:
        return ms.Tensor(own.view(torch.int16).numpy()).view(ms.bfloat16)
    return ms.Tensor(own.numpy())


def walk(value: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield every MindSpore tensor of a nested result, with the path torch's would have."""
    if is_tensor(value):
        yield path, value
    elif depth > DEEPEST:
        return
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from walk(item, f"{path}[{key!r}]", depth + 1)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from walk(item, f"{path}[{index}]", depth + 1)
    elif not isinstance(value, type | ModuleType) and not callable(value):
        for key, item in getattr(value, "__dict__", {}).items():
            yield from walk(item, f"{path}.{key}", depth + 1)


class _Seen(NamedTuple):
    owner: weakref.ref[Any]
    wrappers: list[torch.Tensor]
    checksum: int


class Mirror:
    """Hand out the same torch tensor for the same values, as long as MindSpore keeps them.

    A recorder stores a tensor once that is still the object it knows. MindSpore counts no versions
    and writes to the same memory (``x[0] = 5``, ``ops.assign``), so a sum over all bits says
    whether it still holds the same.
    """

    def __init__(self) -> None:
        self._seen: dict[int, _Seen] = {}

    def __call__(self, tensor: Any) -> torch.Tensor:
        """Return the torch tensor that stands for ``tensor`` as it is now."""
        fresh = to_torch(tensor)
        if not fresh.numel() or not fresh.is_contiguous():
            return fresh
        place, checksum = fresh.data_ptr(), _checksum(fresh)
        seen = self._seen.get(place)
        if seen is not None and seen.owner() is not None and seen.checksum == checksum:
            for known in seen.wrappers:
                if known.dtype == fresh.dtype and known.shape == fresh.shape:
                    return known
            seen.wrappers.append(fresh)
            return fresh
        owner = weakref.ref(tensor, lambda gone: self._forget(place, gone))
        self._seen[place] = _Seen(owner, [fresh], checksum)
        return fresh

    def nested(self, value: Any, depth: int = 0) -> Any:
        """Return nested arguments with torch's tensors and formats in place of MindSpore's."""
        if is_tensor(value):
            return self(value)
        if depth > DEEPEST:
            return value
        if type(value) in (list, tuple):
            return type(value)(self.nested(v, depth + 1) for v in value)
        if type(value) is dict:
            return {k: self.nested(v, depth + 1) for k, v in value.items()}
        if type(value).__module__.startswith("mindspore"):
            return DTYPES.get(str(value), value)
        return value

    def _forget(self, place: int, owner: weakref.ref[Any]) -> None:
        seen = self._seen.get(place)
        if seen is not None and seen.owner is owner:
            del self._seen[place]


def _checksum(tensor: torch.Tensor) -> int:
    flat = tensor.reshape(-1).view(torch.uint8)
    wide = flat.numel() // 8 * 8
    return int(flat[:wide].view(torch.int64).sum()) ^ int(flat[wide:].sum())
