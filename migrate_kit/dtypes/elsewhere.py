"""What runs in another thread while a model runs: no mode sees it, so it has to be said."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

from torch.nn.modules.module import register_module_forward_pre_hook

from migrate_kit.results import Finding, counted

if TYPE_CHECKING:
    from types import FrameType

    import torch
    from torch.utils.hooks import RemovableHandle

_FIX = "run it in the thread that calls the model"


class Elsewhere:
    """Note, inside ``with Elsewhere(names):``, the layers that another thread runs.

    Parameters
    ----------
    names : dict of int to str
        The qualified names of the modules by their ``id``.

    Attributes
    ----------
    layers : Counter
        Calls of the model's layers in other threads, by name.
    threads : int
        Threads that were started meanwhile.
    """

    def __init__(self, names: dict[int, str]) -> None:
        self.layers: Counter[str] = Counter()
        self.threads = 0
        self._names = names
        self._hook: RemovableHandle | None = None

    def __enter__(self) -> Elsewhere:  # noqa: PYI034 - Self is in no Python 3.10
        self._here = threading.get_ident()
        self._profile = threading.getprofile()
        threading.setprofile(self._started)
        if threading.active_count() > 1:
            self._watch()
        return self

    def __exit__(self, *_: object) -> None:
        threading.setprofile(self._profile)
        if self._hook is not None:
            self._hook.remove()

    def _watch(self) -> None:
        # Only where there is another thread: each call of a layer takes longer with it. Not on the
        # modules themselves: some take another way where they have hooks.
        if self._hook is None:
            self._hook = register_module_forward_pre_hook(self._runs)

    def findings(self) -> list[Finding]:
        """Say what was not seen."""
        if self.layers:
            calls = counted(sum(self.layers.values()), "call")
            what = f"{calls} of layers ran in another thread, where no operator is seen"
            return [Finding("error", what, ", ".join(list(self.layers)[:5]), _FIX)]
        if self.threads:
            threads = counted(self.threads, "thread")
            what = f"{threads} began while the model ran: operators in another thread are not seen"
            return [Finding("warning", what, "", _FIX)]
        return []

    def _started(self, frame: FrameType, event: str, arg: Any) -> None:
        """Run once in every thread that begins, and give it what it would have had."""
        del frame, event, arg
        sys.setprofile(self._profile)
        self.threads += 1
        self._watch()

    def _runs(self, module: torch.nn.Module, _: Any) -> None:
        if threading.get_ident() != self._here and id(module) in self._names:
            self.layers[self._names[id(module)]] += 1
