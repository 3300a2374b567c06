"""ONNX: the initializers and constants of a graph, without the onnx package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from migrate_kit.checkpoints.formats.beside import (
    left_out,
    no_weights,
    set_arguments_apart,
)
from migrate_kit.checkpoints.formats.onnx_tensor import Tensors
from migrate_kit.checkpoints.formats.wire import BYTES, VARINT, Field, Wire, fits
from migrate_kit.checkpoints.state import Contents, Entry, StateDict
from migrate_kit.results import Finding, counted, plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from migrate_kit.checkpoints.formats.source import Source

# onnx.proto, ModelProto: 1 ir_version, 2 producer_name, 3 its version, 4 domain, 5 model_version,
# 6 doc_string, 7 graph, 8 opset_import, 14 metadata, 20 training, 25 functions, 26 configuration.
# MindIR has the same numbers, and a text as its version.
_MODEL: Final = {1: VARINT, 2: BYTES, 3: BYTES, 4: BYTES, 5: VARINT, 6: BYTES, 7: BYTES} | {
    8: BYTES,
    14: BYTES,
    20: BYTES,
    25: BYTES,
    26: BYTES,
}
# GraphProto: 1 node, 2 name, 5 initializer, 10 doc_string, 11 input, 12 output, 13 value_info,
# 14 quantization, 15 sparse_initializer, 16 metadata.
_GRAPH: Final = dict.fromkeys((1, 2, 5, 10, 11, 12, 13, 14, 15, 16), BYTES)
# NodeProto: 1 input, 2 output, 3 name, 4 op_type, 5 attribute, 6 doc_string, 7 domain, 8 overload.
_NODE: Final = {1: BYTES, 2: BYTES, 3: BYTES, 4: BYTES, 5: BYTES}
# AttributeProto: 1 name, 5 t, 6 g, 11 graphs.
_ATTRIBUTE: Final = {1: BYTES, 6: BYTES, 11: BYTES}
_OPSET: Final = {1: BYTES, 2: VARINT}
_DEEPEST: Final = 32
_LONGEST_PREFIX: Final = 1000


def recognises(source: Source) -> bool:
    """Whether it is a ModelProto with a version that is a number and a graph."""
    wire = Wire(source)
    found = wire.begin(wire.root, 50)
    graphs = [field for field in found if field.number == 7]
    if not fits(found, _MODEL) or not graphs or not any(f.number in (1, 8) for f in found):
        return False
    inner = wire.begin(graphs[0], 20)
    return not graphs[0].value or fits(inner, _GRAPH)


def read(source: Source) -> Contents:
    """List the initializers and the values of Constant nodes, those of inner graphs too."""
    walk = _Walk(source)
    found = Contents("ONNX", "weights", StateDict({}), walk.extras)
    set_arguments_apart(found, walk.entries)
    entries = found.state_dict.entries
    if walk.without:
        found.findings.append(left_out(source, walk.without))
    if walk.sparse:
        found.findings.append(
            Finding(
                "warning",
                f"{counted(walk.sparse, 'sparse initializer')} left out",
                source.path.name,
                "make them dense with the onnx package",
            )
        )
    floats = sum(entry.dtype.is_floating_point for entry in entries.values())
    if not entries or walk.made > floats:
        held, made = counted(floats, "initializer"), counted(walk.made, "tensor")
        what = f"{held}, {made} made by ConstantOfShape"
        found.findings.append(no_weights(source, what, "export the trained network"))
    return found


class _Walk:
    """One pass over the graph and the graphs inside its nodes.

    Attributes
    ----------
    made : int
        The tensors that ConstantOfShape makes of an initializer: what test models have for weights.
    """

    def __init__(self, source: Source) -> None:
        self.source, self.wire = source, Wire(source)
        self.entries: dict[str, Entry] = {}
        self.without: dict[str, str] = {}
        self.extras: dict[str, str] = {}
        self.sparse = self.made = 0
        self._tensors = Tensors(self.wire)
        self._nodes = 0
        graph: Field | None = None
        opsets = []
        for field in self.wire.fields(self.wire.root, "the model", _MODEL):
            if field.number == 7:
                graph = field
            elif field.number in (2, 3):
                key = "producer" if field.number == 2 else "producer version"
                self.extras[key] = plain(self.wire.text(field, key))[:80]
            elif field.number == 8:
                opsets.append(self._opset(field))
        if graph is None:
            raise source.damaged("a model without a graph")
        if opsets:
            self.extras["opset"] = ", ".join(opsets[:10])
        self._graphs(graph)
        self.extras["nodes"] = f"{self._nodes:,}"

    def _opset(self, message: Field) -> str:
        domain, version = "", 0
        for field in self.wire.fields(message, "an opset", _OPSET):
            if field.number == 1:
                domain = plain(self.wire.text(field, "a domain"))[:80]
            else:
                version = field.value
        return f"{domain} {version}".strip()

    def _graphs(self, root: Field) -> None:
        """Walk a graph and those inside it, depth by depth and not by recursion."""
        graphs = [("", root)]
        for _ in range(_DEEPEST):
            graphs = [inner for prefix, graph in graphs for inner in self._graph(prefix, graph)]
            if not graphs:
                return
        raise self.source.damaged(f"graphs are nested more than {_DEEPEST} deep")

    def _graph(self, prefix: str, graph: Field) -> Iterator[tuple[str, Field]]:
        made: list[str] = []
        for field in self.wire.fields(graph, "the graph", _GRAPH):
            if field.number == 5:
                self._add(prefix, field, "")
            elif field.number == 15:
                self.sparse += 1
            elif field.number == 1:
                yield from self._node(prefix, field, made)
        self.made += sum(name in self.entries for name in made)

    def _node(self, prefix: str, message: Field, made: list[str]) -> Iterator[tuple[str, Field]]:
        """Take a node's constant, and yield the graphs in its attributes."""
        self._nodes += 1
        first: dict[int, Field] = {}
        attributes: list[Field] = []
        for field in self.wire.fields(message, "a node", _NODE):
            first.setdefault(field.number, field)
            if field.number == 5:
                attributes.append(field)
        texts = {n: self.wire.text(f, "a name in a node") for n, f in first.items() if n != 5}
        data, output, name, kind = (texts.get(number, "") for number in (1, 2, 3, 4))
        if kind == "ConstantOfShape":
            made.append(prefix + data)
        for attribute in attributes:
            if kind == "Constant" and output:
                self._constant(prefix, attribute, output)
            else:
                yield from self._inner(f"{prefix}{name or output}", attribute)

    def _constant(self, prefix: str, attribute: Field, output: str) -> None:
        for field in self.wire.fields(attribute, "an attribute", {5: BYTES}):
            self._add(prefix, field, output)

    def _inner(self, node: str, attribute: Field) -> Iterator[tuple[str, Field]]:
        """Yield the graphs of an attribute; both branches of an If may have the same names."""
        name = ""
        for field in self.wire.fields(attribute, "an attribute", _ATTRIBUTE):
            if field.number == 1:
                name = self.wire.text(field, "the name of an attribute")
            else:
                prefix = f"{node}.{name}."
                if len(prefix) > _LONGEST_PREFIX:
                    raise self.source.damaged("a node inside a graph has too long a name")
                yield prefix, field

    def _add(self, prefix: str, message: Field, name: str) -> None:
        own, kind, entry = self._tensors.read(message, name)
        if not own:
            raise self.source.damaged("an initializer has no name")
        full = prefix + own
        if full in self.entries or full in self.without:
            raise self.source.damaged(f"{full[:80]!r} is there twice")
        if entry is None:
            self.without[full] = kind
        else:
            self.entries[full] = entry
