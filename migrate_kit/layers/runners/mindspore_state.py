"""What a cell and MindSpore itself were before a run, and how they are put back."""

from __future__ import annotations

import contextlib
import os
import sys
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import torch

from migrate_kit.layers.runners.mindspore_values import is_tensor, to_mindspore, to_torch

if TYPE_CHECKING:
    from collections.abc import Iterator

_CONTAINERS = frozenset((dict, list, set, OrderedDict))
# After an operator failed, what it left in the queue may fail as well.
_FLUSHES = 8


def flush(ms: Any) -> None:
    """Wait for all operators, and raise what one of them failed with.

    MindSpore hands operators to a queue; an error shows at some later one.
    """
    ms.common.api._pynative_executor.sync()  # noqa: SLF001 - the public one refuses the CPU


def drain(ms: Any) -> None:
    """Empty the queue after a failure, so that the next operator does not raise it again."""
    for _ in range(_FLUSHES):
        with contextlib.suppress(Exception):
            flush(ms)
            return


@contextlib.contextmanager
def cell_left_as_found(ms: Any, cell: Any) -> Iterator[None]:
    """Put a cell's attributes, hooks and the values of all its tensors back after a block."""
    cells = {id(c): c for _, c in cell.cells_and_names()}.values()
    attributes = [(vars(c), vars(c).copy()) for c in cells]
    containers = [
        (v, v.copy()) for _, was in attributes for v in was.values() if type(v) in _CONTAINERS
    ]
    held: dict[int, Any] = {}
    for _, content in (*attributes, *containers):
        for value in content.values() if isinstance(content, dict) else content:
            # What has no values yet gets them at its first call.
            if is_tensor(value) and not getattr(value, "has_init", False):
                held[id(value)] = value
    values = [(t, to_torch(t).clone()) for t in held.values()]
    try:
        yield
    finally:
        drain(ms)
        for now, before in attributes:
            for name in now.keys() - before.keys():
                del now[name]
            now.update(before)
        for container, content in containers:
            container.clear()
            if isinstance(container, list):
                container.extend(content)
            else:
                container.update(content)
        for tensor, was in values:
            _put_back(tensor, was)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors are equal bit for bit, NaN too."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    flat = (t.contiguous().reshape(-1).view(torch.uint8) for t in (a, b))
    return torch.equal(*flat)


def _put_back(tensor: Any, was: torch.Tensor) -> None:
    now = to_torch(tensor)
    if same_bits(now, was):
        return
    if now.dtype == was.dtype and now.shape == was.shape:
        now.copy_(was)  # the tensor's own memory, where that is the host's
        if same_bits(to_torch(tensor), was):
            return
    if hasattr(tensor, "set_data"):
        tensor.set_data(to_mindspore(was), slice_shape=now.shape != was.shape)
    else:
        tensor.assign_value(to_mindspore(was))


@contextlib.contextmanager
def eager(ms: Any) -> Iterator[bool]:
    """Run operator by operator; yield whether MindSpore was in graph mode.

    ``MS_JIT=0`` lets functions and cells under ``@jit`` run as the Python they were written in:
    hooks see no cell inside a compiled one. It is read at every call.
    """
    mode, jit = ms.get_context("mode"), os.environ.get("MS_JIT")
    os.environ["MS_JIT"] = "0"
    try:
        if mode != ms.PYNATIVE_MODE:
            ms.set_context(mode=ms.PYNATIVE_MODE)
        yield mode != ms.PYNATIVE_MODE
    finally:
        if jit is None:
            os.environ.pop("MS_JIT", None)
        else:
            os.environ["MS_JIT"] = jit
        if mode != ms.PYNATIVE_MODE:
            ms.set_context(mode=mode)


@contextlib.contextmanager
def seeded(ms: Any, seed: int) -> Iterator[None]:
    """Seed what MindSpore draws from, and put its states back; NumPy's is the caller's."""
    module = sys.modules["mindspore.common.seed"]  # the package has a function of that name
    config = ms.dataset.config
    state, dataset = ms.get_rng_state(), config.get_seed()
    names = ("_GLOBAL_SEED", "_KERNEL_SEED")
    before = {n: getattr(module, n) for n in names if hasattr(module, n)}
    kernels = dict(before.get("_KERNEL_SEED") or {})
    try:
        ms.set_seed(seed % (1 << 32))
        ms.manual_seed(seed % (1 << 32))
        yield
    finally:
        config.set_seed(dataset)
        ms.set_rng_state(state)
        # There is no public way back to "no seed was set".
        for name, value in before.items():
            setattr(module, name, value)
        if isinstance(before.get("_KERNEL_SEED"), dict):
            before["_KERNEL_SEED"].clear()
            before["_KERNEL_SEED"].update(kernels)
