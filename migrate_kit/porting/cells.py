"""The MindSpore network: which of its cells hold parameters, and runs with hands on every cell."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch

from migrate_kit.errors import MigrateError
from migrate_kit.layers.runners.mindspore_import import load
from migrate_kit.layers.runners.mindspore_state import eager
from migrate_kit.layers.runners.mindspore_values import to_mindspore, to_torch, walk

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

# The family of a cell by its class, and its parameters' roles as PyTorch calls them. The most
# derived class that is listed counts: a network's own Conv is often a subclass.
_NORM: Final = {
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}
_PLAIN: Final = {"weight": "weight", "bias": "bias"}
_FAMILIES: Final = {
    "Conv1d": ("conv", _PLAIN),
    "Conv2d": ("conv", _PLAIN),
    "Conv3d": ("conv", _PLAIN),
    "Conv1dTranspose": ("conv", _PLAIN),
    "Conv2dTranspose": ("conv", _PLAIN),
    "Conv3dTranspose": ("conv", _PLAIN),
    "Dense": ("linear", _PLAIN),
    "Linear": ("linear", _PLAIN),
    "BatchNorm1d": ("bn", _NORM),
    "BatchNorm2d": ("bn", _NORM),
    "_BatchNorm": ("bn", _NORM),
    "LayerNorm": ("ln", _NORM),
    "GroupNorm": ("gn", _NORM),
    "Embedding": ("embedding", {"embedding_table": "weight"}),
    "PReLU": ("prelu", {"w": "weight", "a": "weight"}),
    "LSTM": ("rnn", {}),
    "GRU": ("rnn", {}),
    "RNN": ("rnn", {}),
}


@dataclass(slots=True)
class Place:
    """A cell that owns parameters.

    ``parameters`` are its own by role (by name where it is no layer we know), with the full name.
    """

    path: str
    cell: Any
    family: str
    parameters: dict[str, tuple[str, Any]]

    def shape(self, role: str) -> tuple[int, ...]:
        """Return the shape of one parameter."""
        return tuple(self.parameters[role][1].shape)


def places(cell: Any) -> dict[str, Place]:
    """Return every cell that owns parameters, by its path, in the order they are registered."""
    names = {id(p): n for n, p in cell.parameters_and_names()}
    found: dict[str, Place] = {}
    seen: set[int] = set()
    for path, inner in cell.cells_and_names():
        held = inner._params.items()  # noqa: SLF001 - the public walk goes into the children
        own = {n: p for n, p in held if p is not None and id(p) not in seen}
        if not own:
            continue
        seen.update(id(p) for p in own.values())
        family, roles = family_of(inner)
        found[path] = Place(
            path,
            inner,
            family,
            {
                roles.get(n, n): (names.get(id(p), f"{path}.{n}".lstrip(".")), p)
                for n, p in own.items()
            },
        )
    return found


def family_of(cell: Any) -> tuple[str, dict[str, str]]:
    """Return the family of a cell and its roles; "" for what is no layer we know."""
    for kind in type(cell).__mro__:
        if kind.__module__.startswith("mindspore.") and kind.__name__ in _FAMILIES:
            return _FAMILIES[kind.__name__]
    return "", {}


def as_array(value: Any) -> np.ndarray[Any, Any] | None:
    """Return the first tensor in a value as an array, bfloat16 widened, or None."""
    first = next((t for _, t in walk(value)), None)
    if first is None:
        return None
    tensor = to_torch(first)
    array: np.ndarray[Any, Any] = (
        tensor.float() if tensor.dtype == torch.bfloat16 else tensor
    ).numpy()
    return array


class Guided:
    """Run a cell with hands on every inner cell.

    ``before(path, cell, given)`` may return an array that takes the place of the first input, and
    ``after(path, cell, given, made)`` one that takes the place of the output.
    """

    def __init__(
        self,
        cell: Any,
        before: Callable[[str, Any, np.ndarray[Any, Any] | None], Any] | None = None,
        after: Callable[[str, Any, Any, np.ndarray[Any, Any] | None], Any] | None = None,
        watched: set[str] | None = None,
    ) -> None:
        self.cell, self.before, self.after, self.watched = cell, before, after, watched

    def __call__(self, inputs: tuple[Any, ...]) -> Any:
        """Run once; what the cell returns is returned.

        Raises
        ------
        MigrateError
            If the network raises.
        """
        ms = load()
        training = [(inner, inner.training) for _, inner in self.cell.cells_and_names()]
        try:
            with contextlib.ExitStack() as stack:
                stack.enter_context(eager(ms))
                self.cell.set_train(False)
                self._hook(stack, ms)
                return self.cell(*to_mindspore(inputs))
        except MigrateError:
            raise
        except Exception as error:
            raise MigrateError(
                f"the MindSpore network raised {type(error).__name__}: {_first_line(error)}",
                type(self.cell).__name__,
                "give port() inputs that the cell takes as well: cell(*inputs)",
            ) from error
        finally:
            for inner, flag in training:
                inner.training = flag

    def _hook(self, stack: contextlib.ExitStack, ms: Any) -> None:
        for path, inner in self.cell.cells_and_names():
            # The whole network is a layer where it is one by itself.
            skipped = not path if self.watched is None else path not in self.watched
            if skipped:
                continue
            held: list[Any] = []

            def enter(cell: Any, args: Any, path: str = path, held: list[Any] = held) -> Any:
                given = as_array(args)
                other = self.before(path, cell, given) if self.before else None
                if other is not None and given is not None and args:
                    new = ms.Tensor(other.astype(given.dtype, copy=False))
                    args = _with_first(args, new, ms)
                    given = other
                held.append(given)
                return args

            def leave(
                cell: Any, args: Any, output: Any, path: str = path, held: list[Any] = held
            ) -> Any:
                del args
                given = held.pop() if held else None
                made = as_array(output)
                other = self.after(path, cell, given, made) if self.after else None
                if other is None or made is None:
                    return None
                new = ms.Tensor(other.astype(made.dtype, copy=False))
                return _with_first(output, new, ms)

            stack.callback(inner.register_forward_pre_hook(enter).remove)
            stack.callback(inner.register_forward_hook(leave).remove)


def _with_first(value: Any, new: Any, ms: Any) -> Any:
    """Return a value whose first tensor is another."""
    if isinstance(value, ms.Tensor):
        return new
    if isinstance(value, tuple | list):
        items = list(value)
        for i, v in enumerate(items):
            if as_array(v) is not None:
                items[i] = _with_first(v, new, ms)
                break
        return tuple(items) if isinstance(value, tuple) else items
    return value


def set_values(parameter: Any, values: torch.Tensor) -> None:
    """Write a torch tensor into a MindSpore parameter, in the parameter's shape and dtype."""
    tensor = to_mindspore(values.detach().cpu().reshape(tuple(parameter.shape)).contiguous())
    parameter.set_data(
        tensor if tensor.dtype == parameter.dtype else tensor.astype(parameter.dtype)
    )


def values_of(cell: Any) -> dict[str, torch.Tensor]:
    """Return a copy of every parameter, by its full name."""
    return {n: to_torch(p).clone() for n, p in cell.parameters_and_names()}


def put_back(cell: Any, values: dict[str, torch.Tensor]) -> None:
    """Write back what :func:`values_of` returned."""
    for n, p in cell.parameters_and_names():
        if n in values:
            set_values(p, values[n])


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), "")
