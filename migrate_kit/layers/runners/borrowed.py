"""Use somebody's model for one run, in another format if need be, and give it back as it was."""

from __future__ import annotations

import contextlib
import copy
import gc
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from migrate_kit.errors import MigrateError
from migrate_kit.layers.arguments import walk
from migrate_kit.layers.store import DEEPEST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


# Sums of products of a weight and the input; _ConvNd is the base of all convolutions.
LINEAR_LAYERS = (torch.nn.modules.conv._ConvNd, torch.nn.Linear)  # noqa: SLF001


# Parameters of a network whose single layers keep several threads busy in float64.
LARGE = 200_000_000


@contextlib.contextmanager
def in_format(
    model: torch.nn.Module, dtype: torch.dtype | None, device: torch.device | None = None
) -> Iterator[None]:
    """Give a model's floating tensors another format (and device), and put the very same ones back.

    A deep copy would take the memory twice and break where ``forward`` was wrapped (the copy's
    wrapper still calls the original), so the tensors are swapped in place.
    """
    if dtype is None:
        yield
        return

    def convert(t: torch.Tensor, *, copy: bool = False) -> torch.Tensor:
        return t.to(device=device, dtype=_same_kind(t, dtype), copy=copy)

    parameters = [(p, p.data, p.grad) for p in model.parameters()]
    # setattr would go through a module's own __setattr__, which may refuse or copy.
    buffers = [
        (m, n, b)
        for m in model.modules()
        for n, b in m._buffers.items()  # noqa: SLF001
        if b is not None
    ]
    default = torch.get_default_dtype()
    try:
        for p, data, _ in parameters:
            p.grad = None
            p.data = convert(data)
        shared: dict[int, torch.Tensor] = {}
        for m, n, b in buffers:
            m._buffers[n] = shared.setdefault(id(b), convert(b, copy=True))  # noqa: SLF001
        # What a forward makes itself (torch.zeros, masks) should have the format too.
        torch.set_default_dtype(dtype)
        yield
    finally:
        torch.set_default_dtype(default)
        for p, data, grad in parameters:
            p.grad = None
            p.data = data
            p.grad = grad
        for m, n, b in buffers:
            m._buffers[n] = b  # noqa: SLF001


@contextlib.contextmanager
def one_thread(model: torch.nn.Module | None = None) -> Iterator[None]:
    """Compute on one thread, unless ``model`` is so large that more of them are worth it.

    Thousands of short operations start and join all threads each time, and where other work waits
    for the cores every join stalls: on a busy machine with two cores a comparison took 42 s in
    place of 0.5, a float64 run of EfficientNet-Lite0 up to 7 s in place of 0.14.
    """
    threads = torch.get_num_threads()
    large = model is not None and sum(p.numel() for p in model.parameters()) > LARGE
    try:
        if not large:
            torch.set_num_threads(1)
        yield
    finally:
        torch.set_num_threads(threads)


@contextlib.contextmanager
def changed_weight(
    module: torch.nn.Module, function: Callable[[torch.Tensor], torch.Tensor] | None = None
) -> Iterator[None]:
    """Apply ``function`` to a layer's weight and leave its bias out, for the time of a block."""
    bias = getattr(module, "bias", None)
    own = (p for p in (module.weight, bias) if isinstance(p, torch.nn.Parameter))
    saved = [(p, p.data) for p in own]
    try:
        for p, data in saved:
            if p is bias:
                p.data = torch.zeros_like(data)
            elif function is not None:
                p.data = function(data)
        yield
    finally:
        for p, data in saved:
            p.data = data


def moved(value: Any, device: torch.device | None, dtype: torch.dtype | None) -> Any:
    """Return nested arguments, their tensors copied to ``device``, floating ones as ``dtype``.

    Containers, and objects that hold tensors, keep their types; what is passed twice is one copy.

    Raises
    ------
    MigrateError
        If a container holds itself, or is nested too deep.
    """
    return _Mover(device, dtype)(value)


class _Mover:
    def __init__(self, device: torch.device | None, dtype: torch.dtype | None) -> None:
        self._device, self._dtype = device, dtype
        # With each value, so that its id stays its own.
        self._done: dict[int, tuple[Any, Any]] = {}
        self._open: set[int] = set()

    def __call__(self, value: Any, depth: int = 0) -> Any:
        if id(value) in self._done:
            return self._done[id(value)][1]
        if isinstance(value, torch.Tensor):
            return self._note(value, self._tensor(value))
        if isinstance(value, list | tuple | dict):
            if id(value) in self._open or depth > DEEPEST:
                raise MigrateError(
                    f"an argument is a {type(value).__name__} that holds itself"
                    if id(value) in self._open
                    else f"the arguments are nested more than {DEEPEST} deep",
                    "the network's inputs",
                    "pass the tensors in plain lists, tuples or dicts",
                )
            self._open.add(id(value))
            copied = self._container(value, depth + 1)
            self._open.discard(id(value))
            return self._note(value, copied)
        if depth <= DEEPEST and any(True for _ in walk(value)):
            return self._object(value, depth + 1)
        return value

    def _note(self, value: Any, copied: Any) -> Any:
        self._done[id(value)] = value, copied
        return copied

    def _tensor(self, value: torch.Tensor) -> torch.Tensor:
        if value.is_meta:
            return value  # it has no values to copy; whoever records it says so
        # A copy: some networks change their input in place, and the run may be repeated.
        kept = value.detach().to(
            device=self._device, dtype=_same_kind(value, self._dtype), copy=True
        )
        return kept.requires_grad_(value.requires_grad)

    def _container(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if isinstance(value, tuple):
            parts = [self(v, depth) for v in value]
            if kind is tuple or not parts:
                return tuple(parts) if kind is tuple else value
            if kind is torch.Size:
                return value
            if hasattr(value, "_make"):
                return value._make(parts)
            # What torch.max and its like return; another class of the user's own takes its items.
            return kind(parts)
        new = _shell(value)
        if isinstance(new, dict):
            for k, v in value.items():
                dict.__setitem__(new, k, self(v, depth))
        else:
            list.__setitem__(new, slice(None), [self(v, depth) for v in value])
        if kind not in (list, dict):
            self._attributes(new, depth)
        return new

    def _object(self, value: Any, depth: int) -> Any:
        try:
            new = copy.copy(value)
        except Exception:  # noqa: BLE001 - a class may forbid it; then its tensors stay where they are
            return value
        self._note(value, new)  # before its parts: objects may hold each other
        self._attributes(new, depth)
        return new

    def _attributes(self, new: Any, depth: int) -> None:
        attributes = getattr(new, "__dict__", {})
        for k, v in attributes.items():
            attributes[k] = self(v, depth)


def _shell(value: Any) -> Any:
    """Return a list or dict of the same class and, if it is a subclass, with the same items."""
    if type(value) in (list, dict):
        return type(value)()
    try:
        return copy.copy(value)
    except Exception:  # noqa: BLE001 - a class may answer any question about itself by raising
        return dict(value) if isinstance(value, dict) else list(value)


def _same_kind(tensor: torch.Tensor, dtype: torch.dtype | None) -> torch.dtype:
    if dtype is None:
        return tensor.dtype
    if tensor.is_floating_point():
        return dtype
    if tensor.is_complex():
        return dtype.to_complex()
    return tensor.dtype


@contextlib.contextmanager
def random_state(seed: int) -> Iterator[None]:
    """Seed the generators of torch, NumPy and Python for a block, then put their states back."""
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002 - models use it
    torch.manual_seed(seed)
    np.random.seed(seed % (1 << 32))  # noqa: NPY002
    random.seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        random.setstate(states[2])


@contextlib.contextmanager
def without_collector() -> Iterator[None]:
    """Hold the cycle collector back: walking all of torch's objects costs a third of a forward.

    Activations are freed by reference counts, so the run's peak does not grow.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
