"""TensorFlow's frozen GraphDef: its constants are the weights. Also a SavedModel's graph."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from migrate_kit.checkpoints.formats.beside import (
    left_out,
    no_weights,
    set_arguments_apart,
)
from migrate_kit.checkpoints.formats.tf_tensor import NO_NUMBERS, dtype_of, shape_of, tensor_of
from migrate_kit.checkpoints.formats.wire import (
    BYTES,
    FIXED32,
    VARINT,
    Field,
    Wire,
    fits,
)
from migrate_kit.checkpoints.state import Contents, Entry, StateDict
from migrate_kit.errors import MigrateError
from migrate_kit.results import Finding, counted, few

if TYPE_CHECKING:
    from collections.abc import Iterator

    from migrate_kit.checkpoints.formats.source import Source

# graph.proto, GraphDef: 1 node, 2 library, 3 version, 4 versions, 5 debug_info.
_GRAPH: Final = {1: BYTES, 2: BYTES, 3: VARINT, 4: BYTES, 5: BYTES}
# NodeDef: 1 name, 2 op, 3 input, 4 device, 5 attr, 6 and 7 debug information.
_NODE: Final = dict.fromkeys(range(1, 8), BYTES)
_OP: Final = re.compile(rb"[A-Za-z_][A-Za-z0-9_>.]*")
# saved_model.proto: 1 schema version, 2 meta graphs; meta_graph.proto, MetaGraphDef: 2 graph_def.
_SAVED_MODEL: Final = {1: VARINT, 2: BYTES}
_META_GRAPH: Final = dict.fromkeys(range(1, 8), BYTES)
# attr_value.proto: 1 list, 2 s, 3 i, 4 f, 5 b, 6 type, 7 shape, 8 tensor.
_ATTR: Final = {1: BYTES, 2: BYTES, 3: VARINT, 4: FIXED32, 5: VARINT, 6: VARINT, 7: BYTES, 8: BYTES}
_LIST: Final = {2: BYTES, 3: -1, 4: -1, 5: -1, 6: -1}
_VARIABLES: Final = ("Variable", "VariableV2", "VarHandleOp", "AutoReloadVariable")
_LONGEST_VALUE: Final = 1000
_LONGEST_LIST: Final = 64


@dataclass(frozen=True)
class Node:
    """One operator of a graph, as far as a converter needs it.

    Attributes
    ----------
    name, op : str
    inputs : tuple of str
        ``name``, ``name:1`` for a second output, ``^name`` for order alone.
    attrs : dict
        Numbers, texts, dtypes by TensorFlow's name, shapes and lists of them: ``strides``,
        ``padding``, ``data_format``, ``epsilon``. Tensors, functions and what is very long is left
        out.
    tensor : Entry, optional
        A constant's value.
    dtype : str
        TensorFlow's name of a constant's dtype.
    """

    name: str
    op: str
    inputs: tuple[str, ...] = ()
    attrs: dict[str, Any] = field(default_factory=dict)
    tensor: Entry | None = field(default=None, repr=False)
    dtype: str = ""


def recognises(source: Source) -> bool:
    """Whether it is a GraphDef whose first node has a name and an operator, or a SavedModel."""
    wire = Wire(source)
    return _is_graph(wire, wire.root) or is_saved_model(source)


def is_saved_model(source: Source) -> bool:
    """Whether it is a SavedModel, with one graph at least."""
    wire = Wire(source)
    found = wire.begin(wire.root, 3)
    numbers = [f.number for f in found[:2]]
    if numbers != [1, 2] or not fits(found, _SAVED_MODEL) or found[0].value > 9:
        return False
    inner = wire.begin(found[1], 10)
    graphs = [f for f in inner if f.number == 2]
    return fits(inner, _META_GRAPH) and any(_is_graph(wire, f) for f in graphs[:1])


def _is_graph(wire: Wire, message: Field) -> bool:
    found = wire.begin(message, 20)
    nodes = [f for f in found if f.number == 1]
    if not fits(found, _GRAPH) or not nodes:
        return False
    inner = wire.begin(nodes[0])
    first = {f.number: f for f in reversed(inner)}
    if not fits(inner, _NODE) or not {1, 2} <= first.keys() or not first[1].value:
        return False
    return bool(_OP.fullmatch(wire.head(first[2])))


def read(source: Source) -> Contents:
    """List the constants; shapes, axes and paddings are in ``parts["arguments"]``.

    Raises
    ------
    MigrateError
        If it is a SavedModel whose weights are in its folder ``variables``.
    """
    nodes = read_nodes(source)
    variables = [n.name for n in nodes if n.op in _VARIABLES]
    if variables and is_saved_model(source):
        raise _in_variables(source, len(variables))
    constants = [n for n in nodes if n.op == "Const"]
    tensors = {n.name: n.tensor for n in constants if n.tensor is not None}
    found = Contents("frozen GraphDef", "weights", StateDict({}))
    set_arguments_apart(found, tensors)
    entries = found.state_dict.entries
    found.extras["nodes"] = f"{len(nodes):,}"
    texts = [n.name for n in constants if n.tensor is None and n.dtype in NO_NUMBERS]
    if texts:
        found.extras["texts"] = f"{counted(len(texts), 'constant')} without numbers"
    without = {n.name: n.dtype for n in constants if n.tensor is None and n.dtype not in NO_NUMBERS}
    if without:
        found.findings.append(left_out(source, without))
    fix = "give the checkpoint's .index file, or freeze the graph with the checkpoint"
    if not any(e.dtype.is_floating_point or e.nbytes > _LONGEST_VALUE for e in entries.values()):
        what = f"{counted(len(variables), 'variable')} and no constant of weights"
        found.findings.append(no_weights(source, what, fix))
    elif variables:
        count = counted(len(variables), "variable")
        what = f"the values of {count} are not in it: {few(variables)}"
        found.findings.append(Finding("warning", what, source.path.name, fix))
    return found


def read_nodes(source: Source) -> list[Node]:
    """Return the nodes of a GraphDef, or of a SavedModel's first graph, in the file's order.

    Raises
    ------
    MigrateError
        If it is damaged, or two nodes have one name.
    """
    wire = Wire(source)
    graph = _saved_graph(wire) if is_saved_model(source) else wire.root
    nodes: dict[str, Node] = {}
    for message in wire.fields(graph, "the graph", {1: BYTES}):
        node = _node(wire, message)
        if node.name in nodes:
            raise source.damaged(f"two nodes have the name {node.name[:80]!r}")
        nodes[node.name] = node
    return list(nodes.values())


def _saved_graph(wire: Wire) -> Field:
    for meta in wire.fields(wire.root, "the SavedModel", {2: BYTES}):
        for graph in wire.fields(meta, "its graph", {2: BYTES}):
            return graph
    raise wire.source.damaged("a SavedModel without a graph")


def _in_variables(source: Source, count: int) -> MigrateError:
    index = source.path.parent / "variables" / "variables.index"
    where = "load {}" if index.is_file() else "copy the whole folder, and load {}"
    return MigrateError(
        f"a SavedModel: it describes the graph, and the values of {counted(count, 'variable')} "
        "are in the folder variables beside it",
        str(source.path),
        where.format(index),
    )


def _node(wire: Wire, message: Field) -> Node:
    name, op, dtype = "", "", ""
    inputs: list[str] = []
    pairs: list[tuple[str, Field | None]] = []
    for part in wire.fields(message, "a node", _NODE):
        if part.number == 1:
            name = wire.text(part, "the name of a node")
        elif part.number == 2:
            op = wire.text(part, "the operator of a node")
        elif part.number == 3:
            inputs.append(wire.text(part, "the input of a node"))
        elif part.number == 5:
            pairs.append(_pair(wire, part))
    attrs: dict[str, Any] = {}
    tensor: Entry | None = None
    for key, value in pairs:
        if op == "Const" and key == "value" and value is not None and value.number == 8:
            dtype, tensor = tensor_of(wire, value, f"{name[:80]!r}")
        elif value is not None and (found := _value(wire, value)) is not None:
            attrs[key] = found
    return Node(name, op, tuple(inputs), attrs, tensor, dtype)


def _pair(wire: Wire, message: Field) -> tuple[str, Field | None]:
    """Return an entry of the map of attributes."""
    key, value = "", None
    for part in wire.fields(message, "an attribute", {1: BYTES, 2: BYTES}):
        if part.number == 1:
            key = wire.text(part, "the name of an attribute")
        else:
            value = next(wire.fields(part, "an attribute", _ATTR), None)
    return key, value


def _value(wire: Wire, part: Field) -> Any:
    """Return an attribute as Python has it, None for what a converter does not need."""
    if part.number == 1:
        return _list(wire, part)
    if part.number == 7:
        return shape_of(wire, part, "an attribute")
    return _scalar(wire, part)


def _scalar(wire: Wire, part: Field) -> Any:
    if part.number == 2:
        short = part.value <= _LONGEST_VALUE
        data = wire.source.bytes(part.start, part.value, "an attribute") if short else b""
        return data.decode("utf-8", "replace") if short else None
    if part.number == 3:
        return part.signed
    if part.number == 4:
        return part.real
    if part.number == 5:
        return bool(part.value)
    return dtype_of(part.value)[0] if part.number == 6 else None


def _list(wire: Wire, message: Field) -> list[Any] | None:
    found: list[Any] = []
    for part in wire.fields(message, "an attribute", _LIST):
        if part.number == 2 or part.kind != BYTES:
            found.append(_scalar(wire, part))
        else:
            found.extend(_scalar(wire, one) for one in _unpacked(wire, part))
        if len(found) > _LONGEST_LIST:
            return None
    return found


def _unpacked(wire: Wire, part: Field) -> Iterator[Field]:
    """Yield the numbers of a packed field, a few, each as a field of its own."""
    at, kind = part.start, FIXED32 if part.number == 4 else VARINT
    for _ in range(_LONGEST_LIST + 1):
        if at >= part.end:
            return
        if kind == VARINT:
            value, end = wire.varint(at, part.end, "an attribute")
        else:
            end = at + 4
            value = int.from_bytes(wire.source.bytes(at, 4, "an attribute"), "little")
        yield Field(part.number, kind, value, at, end)
        at = end
