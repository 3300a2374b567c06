"""Which tensor of one run is which tensor of the other."""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from migrate_kit.errors import MigrateError
from migrate_kit.layers.arguments import tensor_leaf, tensor_leaves
from migrate_kit.layers.found import Found, forward_records
from migrate_kit.layers.metrics import Stats
from migrate_kit.layers.runners.torch_runner import ROOT
from migrate_kit.layers.scopes import by_scope
from migrate_kit.layers.store import Record, tensor_key
from migrate_kit.layers.structure import by_structure, family

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from migrate_kit.layers.store import Trace

How = Literal["auto", "name", "scope", "structure"]

_LINEAR = ("conv", "deconv", "linear")
# Half of the names of the smaller run must be shared before names are trusted.
_ENOUGH = 0.5


@dataclass(frozen=True)
class Pair:
    """A tensor of the reference and its counterpart.

    ``chain`` are the reference's records that the candidate computes in one step, in order; the
    last is the one compared. ``inputs`` are the encodings of the candidate's tensor arguments.
    """

    chain: tuple[Record, ...]
    candidate: Record | None
    inputs: list[dict[str, Any]] | None = None
    note: str = ""

    @property
    def reference(self) -> Record | None:
        """The record compared, or None where only the candidate has the tensor."""
        return self.chain[-1] if self.chain else None


class _Matched:
    """What was found, by the reference's key."""

    def __init__(self) -> None:
        self.to: dict[tuple[str, str], Found] = {}

    def take(self, found: Iterable[Found]) -> None:
        for one in found:
            self.to[one.record.key] = one

    def put(self, record: Record, candidate: Record) -> None:
        self.to[record.key] = Found(record, candidate)


def pair(reference: Trace, candidate: Trace, how: How = "auto") -> list[Pair]:
    """Pair the records of two traces; every record appears, and the reference's exactly once.

    A layer that handed on its very input (Dropout in eval mode, Identity), and a module that
    returned what a layer inside it made, have no node of their own in an exported graph: they share
    the counterpart of that tensor.

    Parameters
    ----------
    reference, candidate : Trace
    how : {"auto", "name", "scope", "structure"}
        By equal names; by the module scopes that PyTorch's ONNX exporters write; or by operator
        family, shape and order. ``auto`` takes the first that fits.

    Returns
    -------
    list of Pair
        In the reference's execution order; what has no counterpart is listed with a note.

    Raises
    ------
    MigrateError
        If a trace is empty or ``how`` is none of these.
    """
    for trace in (reference, candidate):
        if not trace.records:
            raise MigrateError(
                "the trace is empty: nothing can be compared", str(trace.path), "capture it anew"
            )
    if how == "auto":
        how = _choose(reference, candidate)
    if how not in ("name", "scope", "structure"):
        raise MigrateError(
            f"unknown pairing {how!r}", "pairing=", "use auto, name, scope, structure or a dict"
        )
    matched = _Matched()
    for record in reference.records:
        same = candidate.find(*record.key)
        if same is not None and (how == "name" or record.channel != "forward"):
            matched.put(record, same)
    if how == "scope":
        matched.take(by_scope(reference, candidate))
    elif how == "structure":
        matched.take(by_structure(reference, candidate))
    if how != "name":
        _ends_by_order(reference, candidate, matched)
        _fold_batch_norm(reference, matched)
        _hand_on(reference, candidate, matched)
        _from_inside(reference, matched)
    return _assemble(reference, candidate, matched)


def pair_by_map(reference: Trace, candidate: Trace, names: dict[str, str]) -> list[Pair]:
    """Pair by an explicit map from reference to candidate names; the rest by equal names.

    Raises
    ------
    MigrateError
        If a name is in neither trace.
    """
    matched = _Matched()
    for side, trace, wanted in (
        ("reference", reference, names.keys()),
        ("candidate", candidate, names.values()),
    ):
        known = {r.name for r in trace.records}
        for name in wanted:
            if name not in known:
                close = difflib.get_close_matches(name, known, 3, 0.4)
                raise MigrateError(
                    f"the {side} has no layer {name!r}",
                    "pairing=",
                    f"did you mean {', '.join(close)}?" if close else "list them with to_frame()",
                )
    for record in reference.records:
        other = candidate.find(record.channel, names.get(record.name, record.name))
        if other is not None:
            matched.put(record, other)
    return _assemble(reference, candidate, matched)


def _choose(reference: Trace, candidate: Trace) -> How:
    ours, theirs = ({r.key for r in forward_records(t)} for t in (reference, candidate))
    if len(ours & theirs) >= _ENOUGH * min(len(ours), len(theirs)):
        return "name"
    if any(r.scope for r in candidate.records):
        return "scope"
    return "structure"


# --- inputs and outputs ---------------------------------------------------------------------------


def _ends_by_order(reference: Trace, candidate: Trace, matched: _Matched) -> None:
    """Pair inputs and outputs by order: on the other side they may have other names.

    A network that owns parameters is a layer too, and the output is what it returned.
    """
    for channel in ("input", "output"):
        ours = [r for r in reference.records if r.channel == channel and r.key not in matched.to]
        used = {f.node.key for f in matched.to.values()}
        theirs = [r for r in candidate.records if r.channel == channel and r.key not in used]
        for record, other in zip(ours, theirs, strict=False):
            matched.put(record, other)
    for record in forward_records(reference):
        output = ("output", f"output{record.name.removeprefix(ROOT)}")
        if not record.module and output in matched.to:
            matched.put(record, matched.to[output].node)


# --- layers that have no node of their own --------------------------------------------------------


def _convolutions(reference: Trace) -> dict[tuple[str, str], tuple[Record, Record]]:
    """Return every BatchNorm with the convolution or linear layer whose output it takes."""
    found: dict[tuple[str, str], tuple[Record, Record]] = {}
    made: dict[str, Record] = {}
    last: Record | None = None
    for record in forward_records(reference):
        if family(record.kind) == "bn":
            before = last
            if record.inputs is not None:
                keys = [leaf["tensor"] for leaf in tensor_leaves(record.inputs)]
                before = made.get(keys[0]) if len(keys) == 1 else None
            if before is not None and family(before.kind) in _LINEAR:
                found[record.key] = (record, before)
        if record.tensor is not None and family(record.kind) in _LINEAR:
            made[record.tensor] = record
        last = record
    return found


def _fold_batch_norm(reference: Trace, matched: _Matched) -> None:
    """Where only one of a convolution and its BatchNorm has a counterpart, it is the pair's output.

    Exporters fold BatchNorm into the convolution before it; the one node left carries the name of
    the convolution (TorchScript) or of the BatchNorm (dynamo), and holds the BatchNorm's output.
    """
    for key, (norm, before) in _convolutions(reference).items():
        if before.key in matched.to and key not in matched.to:
            matched.to[key] = replace(matched.to.pop(before.key), record=norm)


def _folded(reference: Trace, matched: _Matched) -> dict[tuple[str, str], Record]:
    """Return the layers that the candidate computes together with the BatchNorm behind them."""
    return {
        key: before
        for key, (_, before) in _convolutions(reference).items()
        if key in matched.to
        and before.key not in matched.to
        and family(matched.to[key].node.kind) != "bn"
    }


def _hand_on(reference: Trace, candidate: Trace, matched: _Matched) -> None:
    """Pair a layer that returned the tensor it was given with the counterpart of that tensor.

    It is what an earlier layer made, or else what a later one takes.
    """
    records = [r for r in reference.records if r.channel in ("input", "forward") and r.tensor]
    held = _taken(records, candidate, matched, _folded(reference, matched))
    for record in records:
        same = (record.tensor or "", record.shape)
        if record.key in matched.to:
            held[same] = matched.to[record.key].node
        elif same in held and same[0] in [k["tensor"] for k in tensor_leaves(record.inputs)]:
            node = held[same]
            leaves = [tensor_leaf(node.tensor, node.dtype, node.shape)] if node.tensor else []
            matched.take([Found(record, node, leaves, "hands on its input")])


def _taken(
    records: list[Record], candidate: Trace, matched: _Matched, folded: Collection[tuple[str, str]]
) -> dict[tuple[str, tuple[int, ...]], Record]:
    """Return what the candidate's layers take where the reference's take a tensor."""
    stored = {tensor_key(r.channel, r.name): r for r in candidate.records}
    taken: dict[tuple[str, tuple[int, ...]], Record] = {}
    for record in records:
        leaves = tensor_leaves(record.inputs)
        inputs = matched.to[record.key].leaves if record.key in matched.to else None
        # A folded BatchNorm's node takes what the layer before it takes.
        if inputs is None or len(leaves) != len(inputs) or record.key in folded:
            continue
        for ours, theirs in zip(leaves, inputs, strict=True):
            node = stored.get(theirs["tensor"])
            if node is not None and ours["shape"] == theirs["shape"]:
                taken.setdefault((ours["tensor"], tuple(ours["shape"])), node)
    return taken


def _from_inside(reference: Trace, matched: _Matched) -> None:
    """Pair a module that returned what a layer inside it made with that layer's counterpart.

    Its scope holds only what it computes itself, which came before. Where no arguments were kept,
    a layer that handed on its input is known by the same equality.
    """
    made: dict[tuple[Any, ...], Record] = {}
    for record in forward_records(reference):
        same = (record.stats, record.shape, record.dtype)
        inner, own = made.get(same), matched.to.get(record.key)
        if inner is not None and inner.module.startswith(f"{record.module}."):
            note = f"returns what {inner.name} made"
        elif inner is not None and own is None and record.inputs is None:
            note = "hands on its input"
        else:
            if own is not None:
                made[same] = record
            continue
        inputs = own.leaves if own else None
        matched.take([Found(record, matched.to[inner.key].node, inputs or [], note)])


# --- the list -------------------------------------------------------------------------------------


def _assemble(reference: Trace, candidate: Trace, matched: _Matched) -> list[Pair]:
    folded = _folded(reference, matched)
    inside = {before.tensor or before.key: name for (_, name), before in folded.items()}
    pairs: list[Pair] = []
    for record in reference.records:
        found = matched.to.get(record.key)
        before = folded.get(record.key)
        if found is None:
            norm = inside.get(record.tensor or record.key)
            alone = f"computed together with {norm}" if norm else "no counterpart in the candidate"
            pairs.append(Pair((record,), None, None, alone))
        elif before is not None:
            note = f"with {before.name} folded into it"
            pairs.append(Pair((before, record), found.node, found.leaves, note))
        else:
            pairs.append(Pair((record,), found.node, found.leaves, found.note))
    used = {f.node.key for f in matched.to.values()}
    extra = [r for r in candidate.records if r.key not in used]
    ours = [Pair((r,), None, None, f"not recorded: {r.dtype}") for r in _left_out(reference)]
    theirs = [Pair((), r, None, f"not recorded: {r.dtype}") for r in _left_out(candidate)]
    return [*_interleave(pairs, extra, candidate), *ours, *theirs]


def _left_out(trace: Trace) -> list[Record]:
    """Return the tensors that a runner could not record, without any values."""
    skipped = trace.meta.get("skipped")
    nothing = Stats(0, math.nan, math.nan, math.nan, math.nan)
    return [
        Record(str(name), "forward", str(name), "", (), str(kind), nothing)
        for name, kind in (skipped.items() if isinstance(skipped, dict) else ())
    ]


def _interleave(pairs: list[Pair], extra: list[Record], candidate: Trace) -> list[Pair]:
    """Put the candidate's own tensors where they happened, after the pair that precedes them."""
    place = {r.key: i for i, r in enumerate(candidate.records)}
    anchor = {p.candidate.key: i for i, p in enumerate(pairs) if p.candidate is not None}
    order: list[tuple[float, int, Pair]] = [(float(i), 0, p) for i, p in enumerate(pairs)]
    for record in extra:
        earlier = (candidate.records[j].key for j in range(place[record.key] - 1, -1, -1))
        at = next((anchor[k] for k in earlier if k in anchor), -1)
        order.append((at + 0.5, place[record.key], Pair((), record, None, "only in the candidate")))
    return [p for _, _, p in sorted(order, key=lambda t: t[:2])]
