"""Find the user's line among the frames of libraries, and say it without anybody's folders."""

from __future__ import annotations

import linecache
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from types import CodeType, FrameType

_TORCH = str(Path(torch.__file__).parent) + os.sep  # torchvision begins like it
_OURS = str(Path(__file__).parents[1]) + os.sep
# Modules of this package that stand between an operator and the line that calls it.
_BETWEEN = {str(Path(__file__).with_name(f"{name}.py")) for name in ("coverage", "numerics")}
# Libraries whose functions stand for operators: the line that calls them is the one to change.
_OPERATOR_LIBRARIES = re.compile(r"[/\\](?:torchvision[/\\]ops[/\\](?!misc)|einops[/\\])")
_LIBRARY, _USER, _END = range(3)
# The name of the place where a loss is computed, which is in no module.
LOSS = "(loss)"


class UserCode:
    """Look for the innermost frame outside torch, this package and libraries of operators."""

    def __init__(self) -> None:
        # By identity: a code object's hash walks over all its constants each time.
        self._kinds: dict[int, int] = {}
        self._alive: list[CodeType] = []

    def frame(self, frame: FrameType | None) -> FrameType | None:
        """Return the user's frame, or None where there is none."""
        kinds = self._kinds
        while frame is not None:
            code = frame.f_code
            kind = kinds.get(id(code))
            if kind is None:
                kind = kinds[id(code)] = _kind(code.co_filename)
                self._alive.append(code)
            if kind == _USER:
                return frame
            if kind == _END:
                return None  # behind it is whoever asked for the rehearsal
            frame = frame.f_back
        return None


def module_of(frame: FrameType | None, names: dict[int, str]) -> str:
    """Return the name of the innermost module whose code is running, by the ids of modules."""
    while frame is not None:
        if frame.f_code.co_filename.startswith(_OURS) and frame.f_code.co_filename not in _BETWEEN:
            break
        owner = frame.f_locals.get("self")
        if isinstance(owner, torch.nn.Module) and id(owner) in names:
            return names[id(owner)]
        frame = frame.f_back
    return ""


def _kind(filename: str) -> int:
    if filename.startswith(_OURS):
        return _LIBRARY if filename in _BETWEEN else _END
    if filename.startswith((_TORCH, "<")) and not filename.startswith("<ipython"):
        return _LIBRARY
    return _LIBRARY if _OPERATOR_LIBRARIES.search(filename) else _USER


def place(code: CodeType | None, line: int) -> str:
    """Return ``file:line`` as short as it can be understood, the same on every machine."""
    if code is None:
        return ""
    name = code.co_filename
    if "ipykernel" in name or name.startswith("<ipython"):
        return f"notebook cell, line {line} ({code.co_name})"
    path = Path(name)
    for root in sorted(sys.path, key=len, reverse=True):
        if root and path.is_relative_to(Path(root).absolute()):
            return f"{path.relative_to(Path(root).absolute()).as_posix()}:{line}"
    return f"{path.name}:{line}"


def text_of(code: CodeType | None, line: int) -> str:
    """Return the text of a line, stripped; empty where the source is not at hand."""
    return "" if code is None else linecache.getline(code.co_filename, line).strip()
