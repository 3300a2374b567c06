"""Runs of networks that tell in which order their layers are called, and with what."""

from __future__ import annotations

import contextlib
import copy
from typing import TYPE_CHECKING, Any

import torch

from migrate_kit.checkpoints.orders import Run
from migrate_kit.errors import MigrateError
from migrate_kit.layers.arguments import walk
from migrate_kit.layers.runners.borrowed import moved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_META = torch.device("meta")


def order_of_calls(model: torch.nn.Module, inputs: tuple[Any, ...]) -> Run:
    """Run the model, and return when each module was first called.

    It runs on the meta device, without values and memory; a network that looks at its values runs
    as it is.

    Raises
    ------
    MigrateError
        If it cannot run on these inputs.
    """
    try:
        return _watched(copy_of(model, meta=True), moved(inputs, _META, None))
    except Exception as error:
        if _is_meta(model):
            raise _failed(error) from error
    with eval_mode(model):
        try:
            return _watched(model, inputs)
        except Exception as error:
            raise _failed(error) from error


@contextlib.contextmanager
def watching(
    model: torch.nn.Module, saw: Callable[[str, torch.Tensor | None], None]
) -> Iterator[None]:
    """Call ``saw(path, first input)`` before each call of a module, its own hooks included."""
    with contextlib.ExitStack() as stack:
        for name, module in model.named_modules():

            def before(_: torch.nn.Module, args: Any, kwargs: Any, name: str = name) -> None:
                saw(name, next((t for _, t in walk([args, kwargs])), None))

            # Before a module's own hooks: the older weight norm makes its weight in one.
            handle = module.register_forward_pre_hook(before, prepend=True, with_kwargs=True)
            stack.callback(handle.remove)
        # The fused attention kernels call no module inside them.
        fast = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        stack.callback(torch.backends.mha.set_fastpath_enabled, fast)
        yield


@contextlib.contextmanager
def eval_mode(model: torch.nn.Module) -> Iterator[None]:
    """Put every module into eval mode, without gradients, and back."""
    modes = [(m, m.training) for m in model.modules()]
    try:
        model.eval()
        with torch.no_grad():
            yield
    finally:
        for module, mode in modes:
            module.training = mode


def _watched(model: torch.nn.Module, inputs: tuple[Any, ...]) -> Run:
    run = Run()
    held: list[torch.Tensor] = []  # so that no two tensors share an id

    def saw(name: str, tensor: torch.Tensor | None) -> None:
        if name not in run.first:
            run.first[name] = len(run.first)
            if tensor is not None:
                held.append(tensor)
                run.inputs[name] = id(tensor)

    with watching(model, saw), eval_mode(model):
        model(*inputs)
    return run


def copy_of(model: torch.nn.Module, *, meta: bool = False) -> torch.nn.Module:
    """Return a copy of its own tensors; on the meta device it takes no memory."""

    def like(tensor: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(tensor, device=_META) if meta else tensor.detach().clone()

    memo: dict[int, Any] = {}
    for module in model.modules():
        for value in (*module._parameters.values(), *module._buffers.values()):  # noqa: SLF001
            if value is not None and id(value) not in memo:
                own: Any = like(value)
                is_parameter = isinstance(value, torch.nn.Parameter)
                memo[id(value)] = torch.nn.Parameter(own, False) if is_parameter else own
        # The older weight norm keeps what it computed, and that copies by itself to nowhere.
        for value in vars(module).values():
            if isinstance(value, torch.Tensor):
                memo[id(value)] = like(value)
    return copy.deepcopy(model, memo)


def _is_meta(model: torch.nn.Module) -> bool:
    return any(p.is_meta for p in model.parameters())


def _failed(error: Exception) -> MigrateError:
    text = str(error).strip().splitlines() or [""]
    return MigrateError(
        f"the model cannot run on these inputs: {type(error).__name__}: {text[0][:300]}",
        "diagnose(model, checkpoint, *inputs)",
        "pass what model(*inputs) takes, or no inputs",
    )
