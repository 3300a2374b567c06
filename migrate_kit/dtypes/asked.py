"""Refuse at once what a rehearsal cannot be asked with."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from migrate_kit.errors import MigrateError
from migrate_kit.layers.store import DEEPEST

_LARGEST_SEED = (1 << 64) - 1


def checked(
    inputs: tuple[Any, ...], kwargs: Any, loss: Any, seed: Any, store: Any
) -> tuple[dict[str, Any], Path | None]:
    """Return the keyword arguments and the folder.

    Raises
    ------
    MigrateError
        If an argument is not what it must be.
    """
    if not (kwargs is None or isinstance(kwargs, Mapping)):
        raise _wrong("kwargs", kwargs, "a dict of the model's keyword arguments")
    keywords = dict(kwargs or {})
    for key in keywords:
        if not isinstance(key, str):
            raise _wrong("kwargs", key, "names, as keys", "a key of ")
    if not (loss is None or callable(loss)):
        raise _wrong("loss", loss, "a function of the model's output that returns a scalar")
    if type(seed) is not int or not -(1 << 63) <= seed <= _LARGEST_SEED:
        raise _wrong("seed", seed, "a whole number of 64 bits")
    _refuse_arrays([list(inputs), keywords], 0)
    return keywords, _folder(store)


def refuse_other(name: str, value: Any, kind: type) -> None:
    """Refuse what is there and of another class."""
    if value is not None and not isinstance(value, kind):
        raise MigrateError(
            f"{name} is a {type(value).__name__}, not a {kind.__name__}",
            f"rehearse({name}=)",
            "pass mk.capture(model, *inputs) and mk.noise_floor(model, *inputs)",
        )


def _folder(store: Any) -> Path | None:
    if store is None:
        return None
    if not isinstance(store, str | os.PathLike) or "\0" in str(store) or not str(store):
        raise _wrong("store", store, "a folder's path")
    return Path(store)


def _wrong(name: str, value: Any, wanted: str, what: str = "") -> MigrateError:
    shown = f" {value!r}" if isinstance(value, str | int | float) else ""
    said = f"{what}{name} is a {type(value).__name__}{shown[:80]}"
    return MigrateError(said, f"rehearse({name}=)", f"pass {wanted}")


def _refuse_arrays(values: Any, depth: int) -> None:
    """Say at once what the first layer would say less clearly."""
    if depth > DEEPEST:
        raise MigrateError(
            f"the inputs are nested more than {DEEPEST} deep, or hold themselves",
            "rehearse(model, *inputs)",
            "pass the tensors in plain lists, tuples or dicts",
        )
    found = values if isinstance(values, list | tuple) else list(values.values())
    for value in found:
        if isinstance(value, torch.Tensor):
            continue
        if isinstance(value, list | tuple | dict):
            _refuse_arrays(value, depth + 1)
        elif type(value).__module__.split(".")[0] in ("numpy", "PIL", "mindspore"):
            raise MigrateError(
                f"an input is a {type(value).__module__}.{type(value).__name__}, not a tensor",
                "rehearse(model, *inputs)",
                "torch.from_numpy(...), and mind its dtype: NumPy's default is float64",
            )
