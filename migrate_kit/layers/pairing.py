"""Which tensor of one run is which tensor of the other."""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

from migrate_kit.errors import MigrateError
from migrate_kit.layers.arguments import tensor_leaves

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from migrate_kit.layers.store import Record, Trace

How = Literal["auto", "name", "scope", "structure"]

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
)
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


@dataclass
class _Matched:
    """Candidate and its arguments by reference key."""

    to: dict[tuple[str, str], tuple[Record, list[dict[str, Any]] | None]] = field(
        default_factory=dict
    )

    def put(
        self, record: Record, candidate: Record, inputs: list[dict[str, Any]] | None = None
    ) -> None:
        if inputs is None and candidate.inputs is not None:
            inputs = tensor_leaves(candidate.inputs)
        self.to[record.key] = (candidate, inputs)


def pair(reference: Trace, candidate: Trace, how: How = "auto") -> list[Pair]:
    """Pair the records of two traces; every record appears exactly once.

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
        _by_scope(reference, candidate, matched)
    elif how == "structure":
        _by_structure(reference, candidate, matched)
    if how != "name":
        _ends_by_order(reference, candidate, matched)
        _fold_batch_norm(reference, matched)
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
    ours, theirs = ({r.key for r in _forward(t)} for t in (reference, candidate))
    if len(ours & theirs) >= _ENOUGH * min(len(ours), len(theirs)):
        return "name"
    if any(r.scope for r in candidate.records):
        return "scope"
    return "structure"


def _forward(trace: Trace) -> list[Record]:
    return [r for r in trace.records if r.channel == "forward"]


# --- by scope -------------------------------------------------------------------------------------


def _by_scope(reference: Trace, candidate: Trace, matched: _Matched) -> None:
    """Pair what a module's k-th call returned with the k-th group of nodes in its scope."""
    calls: dict[str, dict[int, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for record in _forward(reference):
        again = re.search(r"#(\d+)$", record.name.removeprefix(record.module))
        calls[record.module][int(again[1]) if again else 0].append(record)
    groups: dict[str, dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for node in _forward(candidate):
        if node.scope:
            groups[_module_of(node.scope, calls)][node.scope].append(node)
    for module, by_call in calls.items():
        nodes = _split(groups.get(module, {}), len(by_call))
        for records, group in zip(by_call.values(), nodes, strict=False):
            if len(records) > 1:
                _several(records, group, matched)
            elif group:
                same = [n for n in group if n.shape == records[0].shape]
                matched.put(records[0], (same or group)[-1], _outside_inputs(group))


def _several(records: list[Record], group: list[Record], matched: _Matched) -> None:
    """Pair a tuple's tensors with the last nodes of their shapes, in order.

    A state that starts as zeros has the final state's shape, and is expanded to it; a tensor that
    the graph does not compute has no node and stays unpaired.
    """
    inputs = _outside_inputs(group)
    for shape in {r.shape for r in records}:
        ours = [r for r in records if r.shape == shape]
        theirs = [n for n in group if n.shape == shape and n.kind not in ("Expand", "Identity")]
        if len(theirs) >= len(ours):
            for record, node in zip(ours, theirs[-len(ours) :], strict=True):
                matched.put(record, node, inputs)


def _split(scopes: dict[str, list[Record]], calls: int) -> list[list[Record]]:
    """Divide a module's nodes into its calls: one scope a call, or one scope cut evenly."""
    groups = list(scopes.values())
    if len(groups) == calls:
        return groups
    nodes = [n for g in groups for n in g]
    if calls and nodes and len(nodes) % calls == 0:
        size = len(nodes) // calls
        return [nodes[i : i + size] for i in range(0, len(nodes), size)]
    return []


def _module_of(scope: str, known: Iterable[str]) -> str:
    """Return the module path of a scope.

    The TorchScript exporter writes ``/layer1/layer1.0/relu_1``: a Sequential's child repeats its
    parent's last name, and a second call ends in ``_1``. The dynamo exporter's is a path already.
    """
    if not scope.startswith("/"):
        return scope
    path = ""
    for part in scope.strip("/").split("/"):
        last = path.rsplit(".", 1)[-1]
        if last and part.startswith(f"{last}."):
            path += part[len(last) :]
        else:
            path = f"{path}.{part}" if path else part
    names = set(known)
    if path in names:
        return path
    once = re.sub(r"_\d+$", "", path)
    return once if once in names else re.sub(r"_\d+(?=\.|$)", "", path)


def _outside_inputs(group: Sequence[Record]) -> list[dict[str, Any]]:
    own = {n.tensor for n in group}
    leaves = [k for n in group if n.inputs is not None for k in tensor_leaves(n.inputs)]
    return list({k["tensor"]: k for k in leaves if k["tensor"] not in own}.values())


# --- by structure ---------------------------------------------------------------------------------


def _family(kind: str) -> str:
    for pattern, name in _FAMILY:
        if re.fullmatch(pattern, kind):
            return name
    return kind.lower()


def _by_structure(reference: Trace, candidate: Trace, matched: _Matched) -> None:
    """Align the two runs as sequences of (operator family, shape); difflib's longest runs first."""
    ours, theirs = _forward(reference), _forward(candidate)
    a, b = ([(_family(r.kind), r.shape) for r in side] for side in (ours, theirs))
    blocks = difflib.SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks()
    for block in blocks:
        for k in range(block.size):
            matched.put(ours[block.a + k], theirs[block.b + k])
    # Shapes that differ (another batch or image size) leave gaps; where a gap holds the same
    # families on both sides it is the same piece of network.
    i = j = 0
    for block in blocks:
        gap_a, gap_b = ours[i : block.a], theirs[j : block.b]
        if [_family(r.kind) for r in gap_a] == [_family(r.kind) for r in gap_b]:
            for x, y in zip(gap_a, gap_b, strict=True):
                matched.put(x, y)
        i, j = block.a + block.size, block.b + block.size


def _ends_by_order(reference: Trace, candidate: Trace, matched: _Matched) -> None:
    """Pair inputs and outputs by order: on the other side they may have other names."""
    for channel in ("input", "output"):
        ours = [r for r in reference.records if r.channel == channel and r.key not in matched.to]
        used = {c.key for c, _ in matched.to.values()}
        theirs = [r for r in candidate.records if r.channel == channel and r.key not in used]
        for record, other in zip(ours, theirs, strict=False):
            matched.put(record, other)


# --- folded BatchNorm -----------------------------------------------------------------------------


def _fold_batch_norm(reference: Trace, matched: _Matched) -> None:
    """Where only one of a convolution and its BatchNorm has a counterpart, it is the pair's output.

    Exporters fold BatchNorm into the convolution before it; the one node left carries the name of
    the convolution (TorchScript) or of the BatchNorm (dynamo), and holds the BatchNorm's output.
    """
    records = _forward(reference)
    for before, norm in pairwise(records):
        if _family(norm.kind) != "bn" or _family(before.kind) not in ("conv", "deconv", "linear"):
            continue
        if norm.inputs is not None and [leaf["tensor"] for leaf in tensor_leaves(norm.inputs)] != [
            before.tensor
        ]:
            continue
        has_conv, has_norm = before.key in matched.to, norm.key in matched.to
        if has_conv and not has_norm:
            matched.to[norm.key] = matched.to.pop(before.key)


def _assemble(reference: Trace, candidate: Trace, matched: _Matched) -> list[Pair]:
    pairs: list[Pair] = []
    held: Record | None = None
    for record in reference.records:
        found = matched.to.get(record.key)
        if found is None:
            held = record
            pairs.append(Pair((record,), None, None, "no counterpart in the candidate"))
            continue
        other, inputs = found
        folded = (
            held is not None
            and _family(record.kind) == "bn"
            and _family(other.kind) != "bn"
            and pairs[-1].chain == (held,)
        )
        if folded and held is not None:
            pairs[-1] = Pair((held,), None, None, f"computed together with {record.name}")
            pairs.append(Pair((held, record), other, inputs, f"with {held.name} folded into it"))
        else:
            pairs.append(Pair((record,), other, inputs))
        held = None
    used = {other.key for other, _ in matched.to.values()}
    return _interleave(pairs, [r for r in candidate.records if r.key not in used], candidate)


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
