"""Runs that share no names, aligned by what their layers are and in which order they come."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from migrate_kit.layers.found import Found, forward_records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from migrate_kit.layers.store import Trace

# What one framework calls X another calls Y; only used to align runs that share no names.
_FAMILY = (
    (r"(Lazy)?Conv\w*Transpose\w*", "deconv"),
    (r"\w*Conv(\d?d)?\w*", "conv"),
    (r"(Sync)?Batch_?Norm\w*|BatchNormalization", "bn"),
    (r"Linear|Gemm|MatMul|Dense|NonDynamicallyQuantizableLinear", "linear"),
    (r"Re[lL][uU]6|Clip|Hardtanh", "relu6"),
    (r"Re[lL][uU]\w*", "relu"),
    (r"\w*AvgPool\w*|\w*AveragePool\w*|ReduceMean", "avgpool"),
    (r"\w*MaxPool\w*", "maxpool"),
    (r"HSwish|Hard[sS]wish", "hardswish"),
    (r"HSigmoid|Hard[sS]igmoid", "hardsigmoid"),
)


def family(kind: str) -> str:
    """Return one word for what frameworks call by several: conv, bn, linear, relu, ..."""
    for pattern, name in _FAMILY:
        if re.fullmatch(pattern, kind):
            return name
    return kind.lower()


def by_structure(reference: Trace, candidate: Trace) -> Iterator[Found]:
    """Align the two runs as sequences of (operator family, shape); difflib's longest runs first."""
    ours, theirs = forward_records(reference), forward_records(candidate)
    a, b = ([(family(r.kind), r.shape) for r in side] for side in (ours, theirs))
    blocks = difflib.SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks()
    for block in blocks:
        for k in range(block.size):
            yield Found(ours[block.a + k], theirs[block.b + k])
    # Shapes that differ (another batch or image size) leave gaps; where a gap holds the same
    # families on both sides it is the same piece of network.
    i = j = 0
    for block in blocks:
        gap_a, gap_b = ours[i : block.a], theirs[j : block.b]
        if [family(r.kind) for r in gap_a] == [family(r.kind) for r in gap_b]:
            for x, y in zip(gap_a, gap_b, strict=True):
                yield Found(x, y)
        i, j = block.a + block.size, block.b + block.size
