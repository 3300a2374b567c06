"""A layer of one run, found in another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from migrate_kit.layers.arguments import tensor_leaves

if TYPE_CHECKING:
    from migrate_kit.layers.store import Record, Trace


@dataclass(frozen=True)
class Found:
    """A record of the reference and the candidate's record of the same tensor.

    ``inputs`` are the encodings of the tensors that the candidate's layer takes; None stands for
    those of ``node`` itself.
    """

    record: Record
    node: Record
    inputs: list[dict[str, Any]] | None = None
    note: str = ""

    @property
    def leaves(self) -> list[dict[str, Any]] | None:
        """The encodings, or None where the candidate's trace keeps no arguments."""
        if self.inputs is None and self.node.inputs is not None:
            return tensor_leaves(self.node.inputs)
        return self.inputs


def forward_records(trace: Trace) -> list[Record]:
    """Return the layers' own tensors, in execution order."""
    return [r for r in trace.records if r.channel == "forward"]
