"""Which layer of a network failed, on what, and what its exception says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def said_by(error: BaseException) -> str:
    """Return the text of anybody's exception, which may raise another."""
    return _text(str, error).strip()


def _text(form: Callable[[Any], str], value: Any) -> str:
    try:
        return form(value)
    except Exception as error:  # noqa: BLE001 - it is the user's code
        return f"({type(value).__name__}: its text raises {type(error).__name__})"


def innermost_layer(
    names: Mapping[int, str], error: BaseException
) -> tuple[torch.nn.Module | None, dict[str, Any]]:
    """Return the innermost module whose forward was running, and its variables.

    Read from the traceback's own frames; ``names`` holds the modules looked for, by ``id``.
    """
    innermost, frame_locals = None, {}
    tb = error.__traceback__
    while tb is not None:
        owner = tb.tb_frame.f_locals.get("self")
        if id(owner) in names and isinstance(owner, torch.nn.Module):
            innermost, frame_locals = owner, tb.tb_frame.f_locals
        tb = tb.tb_next
    return innermost, frame_locals


def where_it_failed(model: torch.nn.Module, error: BaseException) -> tuple[str, str]:
    """Name the layer that failed and what it was called with."""
    names = {id(m): n or "model" for n, m in model.named_modules()}
    innermost, frame_locals = innermost_layer(names, error)
    if innermost is None:
        return type(model).__name__, "the call"
    seen = [
        f"{k} {described(v)}"
        for k, v in frame_locals.items()
        if k != "self" and isinstance(v, torch.Tensor)
    ]
    text = _text(repr, innermost)
    said = type(innermost).__name__ if "\n" in text else text
    where = f"layer {names[id(innermost)]} ({said})"
    return where, f"its inputs ({', '.join(seen[:4])})" if seen else "its inputs"


def described(value: Any) -> str:
    """Say what a value is in a few words."""
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
    return f"a {type(value).__name__}"
