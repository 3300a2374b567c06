"""One rehearsal at a time: a run uses what the whole process shares."""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import TYPE_CHECKING

from migrate_kit.errors import MigrateError
from migrate_kit.layers.capture import RUNS

if TYPE_CHECKING:
    from collections.abc import Iterator

# A run that has waited for another thread at so many looks in a row waits for the one that asks.
_LOOKS, _SECONDS = 6, 0.5


class _Holder:
    thread: int | None = None


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Wait until no other run uses what the process shares.

    Raises
    ------
    MigrateError
        If the run that is waited for cannot end: it is the one that asks, or waits for it.
    """
    if _Holder.thread == threading.get_ident():
        raise _inside("a model is rehearsed inside a rehearsal")
    waits = 0
    while not RUNS.acquire(timeout=_SECONDS):
        waits = waits + 1 if _waits(_Holder.thread) else 0
        if waits >= _LOOKS:
            raise _inside("the rehearsal that runs seems to wait for this one")
    _Holder.thread = threading.get_ident()
    try:
        yield
    finally:
        _Holder.thread = None
        RUNS.release()


def _waits(thread: int | None) -> bool:
    """Whether a thread waits for another one: its innermost frame is a join or a lock's."""
    frame = sys._current_frames().get(thread or 0)  # noqa: SLF001 - there is no public one
    return frame is not None and frame.f_code.co_filename == threading.__file__


def _inside(what: str) -> MigrateError:
    return MigrateError(what, "rehearse(...)", "call it outside of the model's forward")
