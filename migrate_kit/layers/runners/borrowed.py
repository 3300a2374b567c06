"""Use somebody's model for one run, in another format if need be, and give it back as it was."""

from __future__ import annotations

import contextlib
import gc
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from migrate_kit.layers.capture import RunOptions


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
    """Return nested arguments, their tensors copied to ``device``, floating ones as ``dtype``."""
    if isinstance(value, torch.Tensor) and value.is_meta:
        return value  # it has no values to copy; whoever records it says so
    if isinstance(value, torch.Tensor):
        # A copy: some networks change their input in place, and the run may be repeated.
        kept = value.detach().to(device=device, dtype=_same_kind(value, dtype), copy=True)
        return kept.requires_grad_(value.requires_grad)
    if isinstance(value, list):
        return [moved(v, device, dtype) for v in value]
    if isinstance(value, tuple):
        items = [moved(v, device, dtype) for v in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, dict):
        return {k: moved(v, device, dtype) for k, v in value.items()}
    return value


def _same_kind(tensor: torch.Tensor, dtype: torch.dtype | None) -> torch.dtype:
    if dtype is None:
        return tensor.dtype
    if tensor.is_floating_point():
        return dtype
    if tensor.is_complex():
        return dtype.to_complex()
    return tensor.dtype


@contextlib.contextmanager
def left_as_found(model: torch.nn.Module, options: RunOptions) -> Iterator[None]:
    """Put gradients, buffers and (after an optimizer step) parameters back."""
    grads = [(p, p.grad) for p in model.parameters()]
    data = [(p, p.detach().clone()) for p in model.parameters()] if options.optimizer else []
    # Also in eval mode: caches and counters are buffers too, and a forward may add or rebind them.
    buffers = [(m, dict(m._buffers)) for m in model.modules()]  # noqa: SLF001
    values = [(b, b.clone()) for _, own in buffers for b in own.values() if b is not None]
    try:
        for p, _ in grads:
            p.grad = None
        yield
    finally:
        for p, grad in grads:
            p.grad = grad
        with torch.no_grad():
            for p, before in data:
                p.copy_(before)
            for m, own in buffers:
                m._buffers.clear()  # noqa: SLF001
                m._buffers.update(own)  # noqa: SLF001
            for b, before in values:
                b.copy_(before)


@contextlib.contextmanager
def random_state(seed: int) -> Iterator[None]:
    """Seed torch's generator for a block, then put its state back."""
    state = torch.get_rng_state()
    torch.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(state)


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
