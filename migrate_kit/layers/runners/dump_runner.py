"""A trace on disk behind the same verbs as a network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from migrate_kit.layers.store import Trace

if TYPE_CHECKING:
    from migrate_kit.layers.capture import Recorder, RunOptions


class DumpRunner:
    """Read a trace that :func:`migrate_kit.capture` wrote, here or on another machine.

    ``mk.capture(mk.DumpRunner(path))`` and ``mk.compare(mk.DumpRunner(path), ...)`` read it;
    nothing is run and no tensor is loaded before it is compared.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def load(self) -> Trace:
        """Return the trace.

        Raises
        ------
        MigrateError
            If it is no trace, is truncated, or was written by a newer version.
        """
        return Trace.load(self.path)

    def meta(self) -> dict[str, Any]:
        """Return what the trace says of its own run."""
        return self.load().meta

    def run(self, recorder: Recorder, inputs: tuple[Any, ...], options: RunOptions) -> None:
        """Report the recorded tensors again, as if the network ran."""
        from migrate_kit.layers.capture import Source

        del inputs, options
        trace = self.load()
        for r in trace.records:
            tensor = trace.tensor(r)
            if tensor is not None:
                source = Source(r.channel, r.name, r.module, r.kind, r.scope, r.parameters)
                recorder.add(source, tensor)
