"""Module paths from the scopes that PyTorch's ONNX exporters write."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator


class ScopeNames:
    """Module paths of scopes.

    The dynamo exporter's scope is a path already. The TorchScript exporter writes
    ``/layer1/layer1.0/layer1.0.1_2``: a child of a Sequential or ModuleList repeats the names of
    the containers around it, one of a ModuleDict leaves them out, and a third call ends in ``_2``.
    """

    def __init__(self, modules: Collection[str], scopes: Collection[str]) -> None:
        parts = [m.split(".") for m in modules]
        # Containers too: a dict, as the order decides between equals.
        self._known = {".".join(p[:n]): None for p in parts for n in range(1, len(p) + 1)}
        self._ends: dict[str, list[str]] = defaultdict(list)
        for known in self._known:
            for n in range(known.count(".")):
                self._ends[known.split(".", n + 1)[-1]].append(known)
        self._frame = (0, "")
        # The network may have been put into another for its export, or taken out of one.
        frames = [self._frame, (1, ""), (2, "")]
        frames += [(0, k) for k in self._known if k not in modules and "." not in k]
        fitting = {self._frame: sum(self.module_of(s) in modules for s in scopes)}
        for frame in frames if 2 * fitting[self._frame] < len(scopes) else ():
            self._frame = frame
            fitting[frame] = sum(self.module_of(s) in modules for s in scopes)
        self._frame = max(fitting, key=lambda f: fitting[f])

    def module_of(self, scope: str) -> str:
        """Return the path of a scope's module, or one that no module has."""
        around, path = self._frame
        for part in _parts(scope)[around:]:
            path = self._child(path, part) if scope.startswith("/") else _below(path, part)
        return path

    def _child(self, path: str, part: str) -> str:
        once = re.sub(r"_\d+$", "", part)
        for name in (part, once):
            for child in self._spellings(path, name):
                if child in self._known:
                    return child
        # A ModuleDict is never called, so its own name is missing.
        inside = _below(path, "")
        for name in (part, once):
            found = [k for k in self._ends.get(name, ()) if k.startswith(inside)]
            if len(found) == 1:
                return found[0]
        return _below(path, part)

    @staticmethod
    def _spellings(path: str, part: str) -> Iterator[str]:
        around, _, last = part.rpartition(".")
        if around and f".{path}".endswith(f".{around}"):
            yield f"{path}.{last}"
        yield _below(path, part)
        while "." in part:  # lists in lists, and containers that are not on the path
            part = part.split(".", 1)[1]
            yield _below(path, part)


def _below(path: str, part: str) -> str:
    return f"{path}.{part}" if path else part


def _parts(scope: str) -> list[str]:
    return scope.strip("/").split("/") if scope.startswith("/") else scope.split(".")
