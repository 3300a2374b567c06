"""ONNX files, against the onnx package."""

import os
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, external_data_helper, helper, numpy_helper

from migrate_kit.checkpoints.formats import onnx_file
from migrate_kit.checkpoints.formats.source import Source
from migrate_kit.errors import MigrateError
from tests.checkpoints.bases import varint

NUMBERS = {
    TensorProto.FLOAT: "f4", TensorProto.UINT8: "u1", TensorProto.INT8: "i1",
    TensorProto.UINT16: "u2", TensorProto.INT16: "i2", TensorProto.INT32: "i4",
    TensorProto.INT64: "i8", TensorProto.BOOL: "?", TensorProto.FLOAT16: "f2",
    TensorProto.DOUBLE: "f8", TensorProto.UINT32: "u4", TensorProto.UINT64: "u8",
    TensorProto.COMPLEX64: "c8", TensorProto.COMPLEX128: "c16",
    TensorProto.BFLOAT16: ml_dtypes.bfloat16, TensorProto.FLOAT8E4M3FN: ml_dtypes.float8_e4m3fn,
    TensorProto.FLOAT8E5M2: ml_dtypes.float8_e5m2,
    TensorProto.FLOAT8E4M3FNUZ: ml_dtypes.float8_e4m3fnuz,
    TensorProto.FLOAT8E5M2FNUZ: ml_dtypes.float8_e5m2fnuz,
}  # fmt: skip


def model(*tensors, nodes=()):
    graph = helper.make_graph(list(nodes), "g", [], [], list(tensors))
    return helper.make_model(graph, producer_name="a test", producer_version="1.0")


def read(content, path=Path("a.onnx")):
    content = content if isinstance(content, bytes) else content.SerializeToString()
    source = Source.of_bytes(path, content)
    assert onnx_file.recognises(source)
    return onnx_file.read(source)


def everything(found):
    return {**found.state_dict, **found.parts.get("arguments", {})}


def same(tensor, array):
    flat = tensor.contiguous().reshape(-1)
    assert tuple(tensor.shape) == array.shape
    bits = flat.view(torch.uint8).numpy().tobytes() if len(flat) else b""
    return bits == np.ascontiguousarray(array).tobytes()


@pytest.mark.parametrize("number", NUMBERS, ids=TensorProto.DataType.Name)
@pytest.mark.parametrize("raw", [True, False], ids=["raw", "typed"])
def test_every_dtype(number, raw):
    # More than 16 values, so that integers are no arguments of an operator.
    array = (np.arange(20) % 5).reshape(4, 5).astype(NUMBERS[number])
    if array.dtype.kind == "i":
        array = -array
    values = array.tobytes() if raw else array.ravel().tolist()
    tensor = helper.make_tensor("a", number, array.shape, values, raw=raw)
    assert tensor.HasField("raw_data") == raw
    assert same(read(model(tensor)).state_dict["a"], numpy_helper.to_array(tensor))


def test_scalars_empty_ones_and_what_a_file_says_of_itself():
    scalar = helper.make_tensor("s", TensorProto.FLOAT, (), [2.5])
    empty = helper.make_tensor("e", TensorProto.FLOAT, (0, 3), [])
    found = read(model(scalar, empty))
    assert same(found.state_dict["s"], np.float32(2.5))
    assert same(found.state_dict["e"], np.zeros((0, 3), "f4"))
    assert found.extras["producer"] == "a test"
    assert found.extras["producer version"] == "1.0"
    assert found.extras["opset"] == str(onnx.defs.onnx_opset_version())
    assert (found.format, found.kind, found.findings) == ("ONNX", "weights", [])


REAL = [
    ("onnx/silero_vad_16k_op15.onnx", 15), ("onnx/magika_standard_v3_3.onnx", 36),
    ("onnx/modelbox_trt_model.onnx", 2), ("onnx/mul_1.onnx", 1), ("onnx/light_resnet50.onnx", 269),
    ("mtcnn/onnx/cv2_onet.onnx", 21), ("mtcnn/onnx/runtime_onet.onnx", 22),
]  # fmt: skip


@pytest.mark.parametrize(("name", "count"), REAL)
def test_a_real_file_is_what_onnx_reads(cases, name, count):
    found = read((cases / name).read_bytes())
    expected = {t.name: numpy_helper.to_array(t) for t in onnx.load(cases / name).graph.initializer}
    read_here = everything(found)
    assert len(expected) == count
    assert expected.keys() <= read_here.keys()
    assert all(same(read_here[key], array) for key, array in expected.items())


@pytest.mark.parametrize("name", ["light_resnet50", "light_shufflenet", "light_squeezenet"])
def test_a_topology_without_weights_is_a_finding(cases, name):
    (finding,) = read((cases / f"onnx/{name}.onnx").read_bytes()).findings
    assert finding.level == "error"
    assert finding.what.startswith("topology without weights: ")


def test_a_graph_without_any_tensor_is_one_too():
    (finding,) = read(model(nodes=[helper.make_node("Relu", ["x"], ["y"])])).findings
    assert (
        finding.what
        == "topology without weights: 0 initializers, 0 tensors made by ConstantOfShape"
    )


def test_constants_are_read_and_small_integers_are_arguments():
    weight = numpy_helper.from_array(np.float32([1, 2, 3]))
    shape = numpy_helper.from_array(np.int64([0, -1]))
    nodes = [
        helper.make_node("Constant", [], ["w"], value=weight),
        helper.make_node("Constant", [], ["shape"], value=shape),
        helper.make_node("Cast", ["w"], ["y"], to=1),
    ]
    found = read(model(nodes=nodes))
    assert list(found.state_dict) == ["w"]
    assert same(found.parts["arguments"]["shape"], np.int64([0, -1]))
    assert found.extras["nodes"] == "3"


def test_both_branches_of_an_if_may_have_the_same_names():
    def branch(value):
        tensor = numpy_helper.from_array(np.float32([value]), "w")
        return helper.make_graph([], "b", [], [], [tensor])

    inner = helper.make_node("If", ["c"], ["y"], then_branch=branch(3), else_branch=branch(4))
    outer = helper.make_graph([inner], "o", [], [], [numpy_helper.from_array(np.float32([5]), "w")])
    node = helper.make_node("If", ["c"], ["x"], name="if", then_branch=branch(1), else_branch=outer)
    found = read(model(numpy_helper.from_array(np.float32([0]), "w"), nodes=[node])).state_dict
    assert {name: tensor.item() for name, tensor in found.items()} == {
        "w": 0, "if.then_branch.w": 1, "if.else_branch.w": 5, "if.else_branch.y.then_branch.w": 3,
        "if.else_branch.y.else_branch.w": 4,
    }  # fmt: skip


def test_graphs_inside_graphs_have_an_end():
    def field(number, content):
        return varint(number << 3 | 2) + varint(len(content)) + content

    graph = b""
    for _ in range(40):  # deeper than Google's protobuf writes
        attribute = field(1, b"body") + field(6, graph)
        graph = field(1, field(2, b"y") + field(4, b"Loop") + field(5, attribute))
    with pytest.raises(MigrateError, match="nested more than 32 deep"):
        read(b"\x08\x08" + field(7, graph))


def test_sparse_ones_texts_and_small_dtypes_are_said():
    text = helper.make_tensor("t", TensorProto.STRING, (1,), [b"a"])
    small = helper.make_tensor("q", TensorProto.INT4, (3,), [1, 2, 3])
    keep = helper.make_tensor("k", TensorProto.FLOAT, (1,), [1.0])
    made = model(text, small, keep)
    values = helper.make_tensor("v", TensorProto.FLOAT, (1,), [1.0])
    indices = helper.make_tensor("i", TensorProto.INT64, (1,), [0])
    made.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [3]))
    found = read(made)
    assert list(found.state_dict) == ["k"]
    assert [finding.what for finding in found.findings] == [
        "2 tensors left out, PyTorch has no dtype for INT4, STRING: t, q",
        "1 sparse initializer left out",
    ]


def external(tmp_path, location="weights.bin", **change):
    made = model(numpy_helper.from_array(np.arange(6, dtype="f4").reshape(2, 3), "w"))
    external_data_helper.convert_model_to_external_data(
        made, location="weights.bin", size_threshold=0, convert_attribute=False
    )
    onnx.save(made, tmp_path / "a.onnx")
    made = onnx.load(tmp_path / "a.onnx", load_external_data=False)
    for pair in made.graph.initializer[0].external_data:
        pair.value = change.get(pair.key, pair.value)
        if pair.key == "location":
            pair.value = location
    (tmp_path / "a.onnx").write_bytes(made.SerializeToString())
    return tmp_path / "a.onnx"


def load(path):
    source = Source(path)
    assert onnx_file.recognises(source)
    return onnx_file.read(source).state_dict


def test_values_in_a_file_beside_it(tmp_path):
    path = external(tmp_path)
    assert path.stat().st_size < 200
    assert same(load(path)["w"], np.arange(6, dtype="f4").reshape(2, 3))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"location": "../weights.bin"}, "outside the folder"),
        ({"location": "/etc/hostname"}, "outside the folder"),
        ({"location": "a/../../weights.bin"}, "outside the folder"),
        ({"location": "C:\\weights.bin"}, "outside the folder"),
        ({"location": "..\\weights.bin"}, "outside the folder"),
        ({"location": ""}, "outside the folder"),
        ({"location": "a\0b"}, "outside the folder"),
        ({"location": "other.bin"}, "it is not there"),
        ({"location": "."}, "outside the folder"),
        ({"offset": "4"}, "damaged"),
        ({"offset": "-4"}, "no place in its file"),
        ({"offset": "1e3"}, "no place in its file"),
        ({"offset": "٣"}, "no place in its file"),
        ({"length": "20"}, "damaged"),
    ],
)
def test_a_file_that_is_elsewhere_or_short_is_refused(tmp_path, change, said):
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "weights.bin").write_bytes(bytes(24))
    with pytest.raises(MigrateError, match=said):
        load(external(folder, **change))


def test_a_link_out_of_the_folder_is_refused_and_a_cache_of_links_is_not(tmp_path):
    folder, blobs = tmp_path / "model", tmp_path / "blobs"
    folder.mkdir()
    blobs.mkdir()
    path = external(folder)
    (folder / "weights.bin").rename(blobs / "1234")
    (folder / "weights.bin").symlink_to(blobs / "1234")
    with pytest.raises(MigrateError, match="a link that leaves the folder"):
        load(path)
    path.rename(blobs / "5678")
    path.symlink_to(os.path.relpath(blobs / "5678", folder))
    assert same(load(path)["w"], np.arange(6, dtype="f4").reshape(2, 3))


def changed(**fields):
    tensor = numpy_helper.from_array(np.arange(6, dtype="f4"), "w")
    for name, value in fields.items():
        if isinstance(value, list):
            tensor.ClearField("raw_data")
            del getattr(tensor, name)[:]
            getattr(tensor, name).extend(value)
        else:
            setattr(tensor, name, value)
    return tensor


@pytest.mark.parametrize(
    "tensors",
    [
        [changed(raw_data=b"1234")],
        [changed(raw_data=b"1" * 28)],
        [changed(float_data=[1.0] * 5)],
        [changed(float_data=[1.0] * 7)],
        [changed(data_type=TensorProto.INT64, int64_data=[1] * 5)],
        [changed(data_type=TensorProto.INT64, int64_data=[300] * 5)],
        [changed(name="")],
        [changed(), changed()],
    ],
    ids=["short", "long", "few", "many", "few varints", "long varints", "no name", "two of a name"],
)
def test_damage_is_said(tensors):
    with pytest.raises(MigrateError, match="damaged"):
        everything(read(model(*tensors)))


@pytest.mark.parametrize("dims", [(-6,), (1 << 62, 4), (1,) * 70, (3,)])
def test_shapes_are_checked(dims):
    tensor = changed()
    del tensor.dims[:]
    tensor.dims.extend(dims)
    with pytest.raises(MigrateError, match="damaged"):
        read(model(tensor))
