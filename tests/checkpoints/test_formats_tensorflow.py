"""TensorFlow's graphs, against Google's protobuf and NumPy."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch

from migrate_kit.checkpoints.formats import frozen_graph
from migrate_kit.checkpoints.formats.source import Source
from migrate_kit.errors import MigrateError
from tests.checkpoints import bases
from tests.checkpoints.schemas import loose_tensorflow, tensorflow

# DataType: NumPy's dtype and the field of TensorProto that lists its values.
LISTS = {
    1: ("f4", "float_val"), 2: ("f8", "double_val"), 3: ("i4", "int_val"), 4: ("u1", "int_val"),
    5: ("i2", "int_val"), 6: ("i1", "int_val"), 8: ("c8", "scomplex_val"), 9: ("i8", "int64_val"),
    10: ("?", "bool_val"), 11: ("i1", "int_val"), 12: ("u1", "int_val"), 13: ("i4", "int_val"),
    14: (ml_dtypes.bfloat16, "half_val"), 17: ("u2", "int_val"), 18: ("c16", "dcomplex_val"),
    19: ("f2", "half_val"), 22: ("u4", "uint32_val"), 23: ("u8", "uint64_val"),
}  # fmt: skip


def listed(array, field):
    """Return an array as TensorFlow's lists hold it."""
    if field == "half_val":
        return array.view("u2").ravel().tolist()
    if array.dtype.kind == "c":
        return array.ravel().view("f4" if array.dtype.itemsize == 8 else "f8").tolist()
    return array.ravel().tolist()


def of(graph):
    content = graph if isinstance(graph, bytes) else graph.SerializeToString()
    return Source.of_bytes(Path("a.pb"), content)


def constant(dtype, shape, schema=tensorflow, **values):
    """Return the one constant of a graph as read."""
    graph = schema.GraphDef()
    bases.add_constant(graph, "a", dtype, shape, **values)
    assert frozen_graph.recognises(of(graph))
    (node,) = frozen_graph.read_nodes(of(graph))
    assert node.tensor.shape == shape
    tensor = node.tensor.read()
    assert (tuple(tensor.shape), tensor.dtype) == (node.tensor.shape, node.tensor.dtype)
    return tensor


def same(tensor, array):
    flat = tensor.contiguous().reshape(-1)
    bits = flat.view(torch.uint8).numpy().tobytes() if len(flat) else b""
    return bits == np.ascontiguousarray(array).tobytes()


@pytest.mark.parametrize("number", LISTS)
def test_every_dtype_as_bytes_as_list_and_shortened(number):
    kind, field = LISTS[number]
    array = np.array([[1, 0, 3], [1, 2, 2]]).astype(kind)
    if array.dtype.kind in "if" and number not in (11, 13):
        array = -array
    content = {"tensor_content": array.tobytes()}
    assert same(constant(number, (2, 3), **content), array)
    values = listed(array, field)
    assert same(constant(number, (2, 3), **{field: values}), array)
    assert same(constant(number, (2, 3), loose_tensorflow, **{field: values}), array)
    # tensor_util.MakeNdarray: a list that is too short repeats its last value, none is zeros.
    parts = 2 if array.dtype.kind == "c" else 1
    assert same(constant(number, (2, 3), **{field: values[: 5 * parts]}), array)
    filled = np.full((2, 3), array.ravel()[0], array.dtype)
    assert same(constant(number, (2, 3), **{field: values[:parts]}), filled)
    assert same(constant(number, (2, 3)), np.zeros_like(array))
    assert same(constant(number, (0, 3)), array[:0])


def test_one_value_for_all_takes_no_memory():
    tensor = constant(1, (1000, 1000, 100), float_val=[2.5])
    assert tensor.untyped_storage().nbytes() == 4
    assert tensor[999, 999, 99] == 2.5


def test_the_nodes_say_what_a_converter_needs():
    nodes = {node.name: node for node in frozen_graph.read_nodes(of(bases.graph_def()))}
    conv = nodes["conv"]
    assert (conv.op, conv.inputs) == ("Conv2D", ("x", "w"))
    assert conv.attrs == {
        "strides": [1, 2, 2, 1],
        "padding": "SAME",
        "epsilon": pytest.approx(0.001),
        "data_format": "NHWC",
        "T": "DT_FLOAT",
        "use": True,
    }
    assert nodes["w"].dtype == "DT_FLOAT"
    assert nodes["words"].tensor is None
    assert nodes["words"].dtype == "DT_STRING"


def test_shapes_negative_numbers_and_lists_of_attributes():
    graph = tensorflow.GraphDef()
    node = bases.add_node(
        graph, "a", "B", n={"i": -3}, s={"list": {"s": [b"x", b"y"]}}, f={"list": {"f": [0.5]}},
        t={"list": {"type": [1, 3]}}, many={"list": {"i": range(100)}}, long={"s": b"x" * 2000},
    )  # fmt: skip
    bases.tf_shape(node.attr.add(key="shape").value.shape, (-1, 784))
    (found,) = frozen_graph.read_nodes(of(graph))
    assert found.attrs == {
        "n": -3, "s": ["x", "y"], "f": [0.5], "t": ["DT_FLOAT", "DT_INT32"], "shape": (-1, 784),
    }  # fmt: skip


def test_weights_and_arguments_are_told_apart():
    found = frozen_graph.read(of(bases.graph_def()))
    assert list(found.state_dict) == ["w", "b", "half"]
    assert list(found.parts["arguments"]) == ["axes"]
    assert found.extras == {
        "arguments": "1 integer constant of at most 16 values: shapes, axes",
        "nodes": "7",
        "texts": "1 constant without numbers",
    }
    assert found.findings == []


@pytest.mark.parametrize(("name", "tensors"), [("mtcnn.pb", 344), ("modelbox_mnist_model.pb", 2)])
def test_a_real_graph_is_what_protobuf_reads(cases, name, tensors):
    content = (cases / "tensorflow" / name).read_bytes()
    message = tensorflow.GraphDef()
    message.ParseFromString(content)
    nodes = frozen_graph.read_nodes(of(content))
    assert [(n.name, n.op, list(n.inputs)) for n in nodes] == [
        (n.name, n.op, list(n.input)) for n in message.node
    ]
    compared = 0
    for node, expected in zip(nodes, message.node, strict=True):
        if node.op == "Const":
            (proto,) = (entry.value.tensor for entry in expected.attr if entry.key == "value")
            kind, field = LISTS[proto.dtype]
            shape = [dim.size for dim in proto.tensor_shape.dim]
            values = np.frombuffer(proto.tensor_content, kind)
            values = values if len(values) else np.array(getattr(proto, field), kind)
            assert same(node.tensor.read(), np.broadcast_to(values.reshape(shape), shape))
            compared += 1
    assert compared == tensors
    found = frozen_graph.read(of(content))
    assert len(found.state_dict) + len(found.parts.get("arguments", ())) == tensors


def saved_model(tmp_path, variables):
    model = tensorflow.SavedModel()
    model.ParseFromString(bases.saved_model().files["saved_model.pb"])
    if variables:
        bases.add_node(model.meta_graphs[0].graph_def, "v", "VarHandleOp")
    path = tmp_path / "saved_model.pb"
    path.write_bytes(model.SerializeToString())
    assert frozen_graph.recognises(Source(path))
    return Source(path)


def test_a_saved_model_of_constants_is_read(tmp_path):
    found = frozen_graph.read(saved_model(tmp_path, variables=False))
    assert list(found.state_dict) == ["w", "b", "half"]


@pytest.mark.parametrize("there", [True, False])
def test_a_saved_model_with_variables_says_where_they_are(tmp_path, there):
    source = saved_model(tmp_path, variables=True)
    if there:
        (tmp_path / "variables").mkdir()
        (tmp_path / "variables/variables.index").write_bytes(b"x")
    with pytest.raises(MigrateError, match="the values of 1 variable are in") as caught:
        frozen_graph.read(source)
    index = tmp_path / "variables/variables.index"
    assert caught.value.fix == (
        f"load {index}" if there else f"copy the whole folder, and load {index}"
    )


def test_a_graph_that_is_not_frozen_is_a_finding():
    graph = bases.graph_def()
    bases.add_node(graph, "v", "VariableV2")
    (finding,) = frozen_graph.read(of(graph)).findings
    assert finding.level == "warning"
    assert finding.what == "the values of 1 variable are not in it: v"
    graph = tensorflow.GraphDef()
    bases.add_node(graph, "v", "VariableV2")
    (finding,) = frozen_graph.read(of(graph)).findings
    assert finding.level == "error"
    assert finding.what.startswith("topology without weights: 1 variable")


def with_constant(**change):
    graph = bases.graph_def()
    tensor = graph.node[1].attr[1].value.tensor
    for name, value in change.items():
        if name == "shape":
            del tensor.tensor_shape.dim[:]
            bases.tf_shape(tensor.tensor_shape, value)
        elif name == "twice":
            graph.node.add().CopyFrom(graph.node[1])
        elif isinstance(value, list):
            tensor.ClearField("tensor_content")
            getattr(tensor, name).extend(value)
        else:
            setattr(tensor, name, value)
    return graph.SerializeToString()


DAMAGED = {
    "too few bytes": with_constant(tensor_content=b"1234"),
    "too many bytes": with_constant(tensor_content=b"1" * 28),
    "another shape": with_constant(shape=(2, 4)),
    "a negative shape": with_constant(shape=(-2, -3)),
    "a huge shape": with_constant(shape=(1 << 40, 1 << 40)),
    "too long a list": with_constant(float_val=[1.0] * 7),
    "two of a name": with_constant(twice=True),
    "a list that claims a gigabyte": with_constant(shape=(1 << 28, 2), float_val=[1.0, 2.0]),
    "cut": with_constant()[:-1],
    "a name that is no text": with_constant().replace(b"\x01w\x12", b"\x01\xff\x12"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_said(name):
    with pytest.raises(MigrateError, match="damaged"):
        frozen_graph.read(of(DAMAGED[name]))
