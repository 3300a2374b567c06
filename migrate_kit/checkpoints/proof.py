"""Proof that a mapping loads: the strict load is tried, on a copy of the model without memory."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch

from migrate_kit.results import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from migrate_kit.checkpoints.sides import Piece
    from migrate_kit.checkpoints.state import Entry

_LONGEST = 2000
# From here on PyTorch's own load takes the longer, the more children a module has.
_MANY = 2000


class Trial:
    """A stand-in for the model that takes every load and keeps nothing.

    Its modules are shallow copies with tensors on the meta device, so that whatever a module does
    when it loads (rename old keys, fill in a counter) is done here too, and the model stays as it
    is. A TorchScript module cannot be copied so: there names and shapes are compared.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._twin: torch.nn.Module | None = None
        if not any(isinstance(m, torch.jit.ScriptModule) for m in model.modules()):
            self._twin = _shadow(model, {})
        self._names = {
            n: tuple(v.shape) for n, v in model.state_dict().items() if isinstance(v, torch.Tensor)
        }

    def __call__(self, state: Mapping[str, Any]) -> str:
        """Return what ``load_state_dict(state)`` would complain about; empty if it loads."""
        if self._twin is None:
            return self._by_names(state)
        stock = type(self._twin).load_state_dict is torch.nn.Module.load_state_dict
        try:
            if stock and len(state) > _MANY:
                return _short(_walk(self._twin, state))
            self._twin.load_state_dict(state, assign=True)
        except Exception as error:  # noqa: BLE001 - a stranger's module may raise anything
            return _short(str(error) or type(error).__name__)
        return ""

    def _by_names(self, state: Mapping[str, Any]) -> str:
        wrong = [
            n for n in self._names if n not in state or tuple(state[n].shape) != self._names[n]
        ]
        wrong += [n for n in state if n not in self._names]
        return _short(f"these names or shapes differ: {', '.join(wrong)}") if wrong else ""


def without_memory(entry: Entry | Piece) -> torch.Tensor:
    """Return a tensor of this shape and dtype that has no values."""
    try:
        return torch.empty(entry.shape, dtype=entry.dtype, device="meta")
    except (RuntimeError, TypeError):  # quantized dtypes do not exist there
        return torch.empty(entry.shape, dtype=torch.uint8, device="meta")


def made(piece: Piece, entries: Mapping[str, Entry]) -> torch.Tensor:
    """Run what makes the piece, on tensors without values: shapes are proved, nothing is read."""
    if piece.make is None:
        return without_memory(piece)
    return piece.make([without_memory(entries[s]) for s in piece.sources])


def _walk(model: torch.nn.Module, state: Mapping[str, Any]) -> str:
    """Do what ``load_state_dict`` does, in a time that grows with the names and not their square.

    PyTorch's own looks through all names below a module for each of its children; every module's
    own part of the load, and its hooks, are the same here.
    """
    missing: list[str] = []
    unexpected: list[str] = []
    errors: list[str] = []
    metadata = getattr(state, "_metadata", None) or {}

    def load(module: torch.nn.Module, own: dict[str, Any], prefix: str) -> None:
        about = {**metadata.get(prefix[:-1], {}), "assign_to_params_buffers": True}
        module._load_from_state_dict(own, prefix, about, True, missing, unexpected, errors)  # noqa: SLF001
        below: dict[str, dict[str, Any]] = {}
        for name, value in own.items():
            if name.startswith(prefix):
                child = name[len(prefix) :].partition(".")[0]
                below.setdefault(child, {})[name] = value
        for name, inner in module._modules.items():  # noqa: SLF001
            if inner is not None:
                load(inner, below.get(name, {}), f"{prefix}{name}.")
        found = torch.nn.modules.module._IncompatibleKeys(missing, unexpected)  # noqa: SLF001
        for hook in module._load_state_dict_post_hooks.values():  # noqa: SLF001
            hook(module, found)

    load(model, dict(state), "")
    said = [("Missing", missing), ("Unexpected", unexpected)]
    wrong = [f"{kind} key(s) in state_dict: {', '.join(names)}." for kind, names in said if names]
    return " ".join([*errors, *wrong])


def _shadow(module: torch.nn.Module, seen: dict[int, Any]) -> torch.nn.Module:
    known: torch.nn.Module | None = seen.get(id(module))
    if known is not None:
        return known
    twin: torch.nn.Module = object.__new__(type(module))
    seen[id(module)] = twin
    # A load may write to what a module holds: an LSTM keeps its weights in a list as well.
    twin.__dict__.update(
        (n, copy.copy(v) if isinstance(v, list | dict | set) else v)
        for n, v in module.__dict__.items()
    )
    for kind in ("_parameters", "_buffers"):
        twin.__dict__[kind] = {n: _empty(t, seen) for n, t in module.__dict__[kind].items()}
    twin.__dict__["_modules"] = {
        n: None if m is None else _shadow(m, seen)
        for n, m in module._modules.items()  # noqa: SLF001
    }
    return twin


def _empty(tensor: torch.Tensor | None, seen: dict[int, Any]) -> torch.Tensor | None:
    if tensor is None or id(tensor) in seen:
        return None if tensor is None else seen[id(tensor)]
    empty = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
    if isinstance(tensor, torch.nn.Parameter):
        empty = torch.nn.Parameter(empty, requires_grad=False)
    seen[id(tensor)] = empty
    return empty


def _short(text: str) -> str:
    text = plain(" ".join(text.split()))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."
