"""Which node of an ONNX graph holds which module's result: by the scopes that exporters write."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from migrate_kit.layers.arguments import tensor_leaves
from migrate_kit.layers.found import Found, forward_records
from migrate_kit.layers.scope_names import ScopeNames
from migrate_kit.layers.store import tensor_key

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    import torch

    from migrate_kit.layers.metrics import Stats
    from migrate_kit.layers.store import Record, Trace

# Two tensors further apart than this, relative to the reference, are not taken for the same one.
CLOSE = 0.5
# A module's calls differ in length, as a first call without a state does: how far the end of one
# is looked for, in lengths of the average call.
LOOK_AHEAD = 4
# What fills or copies a state; it has the shape of a result and is none.
_NO_RESULT = ("Expand", "Identity", "ConstantOfShape")


def by_scope(reference: Trace, candidate: Trace) -> Iterator[Found]:
    """Pair what a module's k-th call returned with nodes of the k-th group of its scope.

    A single tensor is the group's last node of its shape. Several tensors of one shape (a state's
    ``h`` and ``c``) are told apart by value, as exporters keep no order of a tuple.

    Parameters
    ----------
    reference, candidate : Trace
        Of a network, and of an ONNX file that one of PyTorch's exporters made of it.

    Yields
    ------
    Found
        At most one for every record of the reference.
    """
    calls: dict[str, dict[int, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for record in forward_records(reference):
        again = re.search(r"#(\d+)$", record.name.removeprefix(record.module))
        calls[record.module][int(again[1]) if again else 0].append(record)
    values, graph = _Values(reference, candidate), _Graph(candidate)
    groups, inside = _grouped(graph, calls)
    for module, by_call in calls.items():
        called = list(by_call.values())
        for records, group in zip(called, _split(groups[module], called, values), strict=False):
            inputs = _entering(records[0], group + inside[module])
            if inside[module] and len(called) > 1:
                inputs = []  # the nodes of its children are not divided into its calls
            if len(records) > 1:
                for record, node, note in _several(records, group, values, graph):
                    yield Found(record, node, inputs, note)
            elif group:
                same = [n for n in group if n.shape == records[0].shape]
                yield Found(records[0], (same or group)[-1], inputs)


def _grouped(
    graph: _Graph, modules: Collection[str]
) -> tuple[dict[str, list[list[Record]]], dict[str, list[Record]]]:
    """Return every module's own nodes, scope by scope, and the nodes of the modules inside it."""
    scopes: dict[str, list[Record]] = defaultdict(list)
    for node in graph.nodes:
        if graph.scopes[node.name]:
            scopes[graph.scopes[node.name]].append(node)
    names = ScopeNames(modules, scopes)
    groups: dict[str, list[list[Record]]] = defaultdict(list)
    inside: dict[str, list[Record]] = defaultdict(list)
    for scope, nodes in scopes.items():
        module = names.module_of(scope)
        groups[module].append(nodes)
        while module := module.rpartition(".")[0]:
            inside[module] += nodes
    return groups, inside


# --- calls ----------------------------------------------------------------------------------------


def _split(
    groups: list[list[Record]], calls: list[list[Record]], values: _Values
) -> list[list[Record]]:
    """Divide a module's nodes into its calls.

    One scope a call; or one scope cut into equal pieces; or, where the calls were not exported
    alike, cut behind the nodes that hold each call's results.
    """
    count = len(calls)
    if len(groups) == count:
        return groups
    nodes = [n for g in groups for n in g]
    size = len(nodes) // count
    equal = [nodes[i : i + size] for i in range(0, count * size, size)] if size else []
    if size * count == len(nodes) and len({tuple(n.kind for n in e) for e in equal}) <= 1:
        return equal
    cut: list[list[Record]] = []
    start = 0
    for records in calls:
        ahead = nodes[start : start + LOOK_AHEAD * (size + 1)]
        found = [values.nearest(r, ahead) for r in records]
        ends = [i for i in found if i is not None]
        if not ends:
            break
        cut.append(ahead[: max(ends) + 1])
        start += max(ends) + 1
    return cut


def _entering(record: Record, group: Sequence[Record]) -> list[dict[str, Any]]:
    """Return what enters a group, as the module's arguments if they are as many.

    A tensor that the module was called with twice (self-attention) enters once, and the graph may
    use a state before the sequence.
    """
    own = {n.tensor for n in group} | {tensor_key("forward", n.name) for n in group}
    leaves = [k for n in group if n.inputs is not None for k in tensor_leaves(n.inputs)]
    outside = list({k["tensor"]: k for k in leaves if k["tensor"] not in own}.values())
    wanted = tensor_leaves(record.inputs)
    shapes = {k["tensor"]: k["shape"] for k in wanted}
    if len(outside) != len(shapes):
        return outside
    ordered = []
    for shape in shapes.values():
        fits = next((k for k in outside if k["shape"] == shape and k not in ordered), None)
        if fits is None:
            ordered = outside
            break
        ordered.append(fits)
    entering = dict(zip(shapes, ordered, strict=True))
    return [entering[k["tensor"]] for k in wanted]


# --- several results ------------------------------------------------------------------------------


def _several(
    records: list[Record], group: list[Record], values: _Values, graph: _Graph
) -> Iterator[tuple[Record, Record, str]]:
    """Pair the tensors of one call, shape by shape.

    First with what leaves the group, then with any node of that value (the last state of a cell may
    leave the network's use, not its graph), last in order: a gross fault has nobody's value. What
    the graph does not compute stays alone.
    """
    for shape in dict.fromkeys(r.shape for r in records):
        ours = [r for r in records if r.shape == shape]
        nodes = [n for n in group if n.shape == shape and n.kind not in _NO_RESULT]
        leaving = [n for n in nodes if graph.leaves(n, group)]
        if len(ours) == len(leaving) == 1:
            yield ours[0], leaving[0], ""
            continue
        for only_leaving in (True, False):
            among = leaving if only_leaving else nodes
            chosen = values.match(ours, among)
            note = f"the nearest in value of {len(among)} nodes of this shape"
            for i, j in chosen.items():
                yield ours[i], among[j], note if len(among) > 1 else ""
            taken = {among[j].name for j in chosen.values()}
            ours = [r for i, r in enumerate(ours) if i not in chosen]
            leaving = [n for n in leaving if n.name not in taken]
            nodes = [n for n in nodes if n.name not in taken]
        if ours and len(leaving) >= len(ours):
            for record, node in zip(ours, leaving[-len(ours) :], strict=True):
                yield record, node, ""


class _Graph:
    """The candidate's nodes, who uses their outputs, and their scopes."""

    def __init__(self, candidate: Trace) -> None:
        self.nodes = forward_records(candidate)
        self._users: dict[str, set[str]] = defaultdict(set)
        self._results = {r.name for r in candidate.records if r.channel == "output"}
        for node in self.nodes:
            for leaf in tensor_leaves(node.inputs):
                self._users[leaf["tensor"]].add(node.name)
        self.scopes = {n.name: n.scope for n in self.nodes}
        makers = {tensor_key("forward", n.name): n.name for n in self.nodes}
        for node in self.nodes:
            if not node.scope:
                # An exporter's own helper (Unsqueeze of a shape, Split) has none. It belongs where
                # what it takes comes from and what it makes goes to.
                takes = {makers.get(leaf["tensor"], "") for leaf in tensor_leaves(node.inputs)}
                around = {self.scopes.get(n, "") for n in takes | self._users_of(node)}
                if len(around) == 1 and takes and self._users_of(node):
                    self.scopes[node.name] = around.pop()

    def _users_of(self, node: Record) -> set[str]:
        return self._users[tensor_key("forward", node.name)]

    def leaves(self, node: Record, group: Sequence[Record]) -> bool:
        """Whether the output is used outside the group, or by nobody."""
        users = self._users_of(node)
        return node.name in self._results or not users or not users <= {n.name for n in group}


class _Values:
    """How far tensors are apart, relative to the reference's: from sketches, else statistics."""

    def __init__(self, reference: Trace, candidate: Trace) -> None:
        self._reference, self._candidate = reference, candidate
        self._sketches: dict[tuple[bool, str], torch.Tensor | None] = {}

    def nearest(self, record: Record, nodes: Sequence[Record]) -> int | None:
        """Return the place of the first node that has the record's shape and nearly its values."""
        near = [(self._apart(record, n), i) for i, n in enumerate(nodes) if n.shape == record.shape]
        apart, place = min(near, default=(math.inf, -1))
        return place if apart < CLOSE else None

    def match(self, ours: Sequence[Record], theirs: Sequence[Record]) -> dict[int, int]:
        """Return pairs of places, the nearest first; of equal nodes the last: it is the result."""
        table = [
            (self._apart(r, n), i, -j) for i, r in enumerate(ours) for j, n in enumerate(theirs)
        ]
        chosen: dict[int, int] = {}
        for apart, i, j in sorted(table):
            if apart < CLOSE and i not in chosen and -j not in chosen.values():
                chosen[i] = -j
        return chosen

    def _apart(self, record: Record, node: Record) -> float:
        a, b = self._sketch(record, ours=True), self._sketch(node, ours=False)
        if a is None or b is None:
            norm, apart = _by_statistics(record.stats, node.stats)
        else:
            norm, apart = float(a.norm()), float((a - b).norm())
        relative = apart / norm if norm else (math.inf if apart else 0.0)
        return relative if math.isfinite(relative) else math.inf

    def _sketch(self, record: Record, *, ours: bool) -> torch.Tensor | None:
        key = (ours, record.name)
        if key not in self._sketches:
            self._sketches[key] = (self._reference if ours else self._candidate).sketch(record)
        return self._sketches[key]


def _by_statistics(ours: Stats, theirs: Stats) -> tuple[float, float]:
    """Return the root mean square, and how far apart two tensors of one shape are at least."""
    root = math.sqrt(max(1, ours.numel))
    apart = (
        (ours.norm - theirs.norm) / root,
        ours.min - theirs.min,
        ours.max - theirs.max,
        ours.mean - theirs.mean,
    )
    return ours.norm / root, max(abs(d) for d in apart)
