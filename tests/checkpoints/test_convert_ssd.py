"""SSD-MobileNetV1 from a frozen graph, against the graph itself and against ONNX Runtime."""

import numpy as np
import pytest
import torch

from migrate_kit.checkpoints.convert import convert_weights
from migrate_kit.checkpoints.formats.frozen_graph import read_nodes
from migrate_kit.checkpoints.formats.source import Source
from migrate_kit.checkpoints.networks.same_padding import SameConv2d
from migrate_kit.checkpoints.networks.ssd_mobilenet_v1 import Sizes, SSDMobileNetV1
from migrate_kit.checkpoints.proofs import graph_run
from migrate_kit.checkpoints.proofs.graph_run import GraphRun
from migrate_kit.errors import MigrateError
from tests.checkpoints import ssd_graph
from tests.checkpoints.one_thread import one_thread  # noqa: F401
from tests.checkpoints.ssd_graph import SSD, Graph

FORMS = ("published", "fused", "separate")


def small(form, **settings):
    return SSD(form, width=0.125, classes=5, **settings)


def converted(graph, folder):
    (folder / "graph.pb").write_bytes(graph.data)
    return convert_weights("ssd_mobilenet_v1", folder / "graph.pb", folder / "ssd.pth")


def onnx_layout(name, value):
    if value.ndim == 4:
        order = (2, 3, 0, 1) if "depthwise_weights" in name else (3, 2, 0, 1)
        return np.ascontiguousarray(value.transpose(order))
    return value.reshape(-1, 1, 1)


def as_onnx(graph):
    """The same nodes for ONNX Runtime, which pads SAME_UPPER by itself."""
    onnx = pytest.importorskip("onnx")
    make, nodes, constants = onnx.helper.make_node, [], []
    for name, op, inputs, attrs, value in graph.nodes:
        if name.startswith(("image_tensor", "ToFloat", "Preprocessor")):
            continue
        if op == "Const":
            constants.append(onnx.numpy_helper.from_array(onnx_layout(name, value), name))
        elif "Conv" in op:
            stride = attrs["strides"][-2]
            depth = next(c.dims[0] for c in constants if c.name == inputs[1])
            nodes.append(
                make("Conv", inputs, [name], strides=[stride] * 2, auto_pad="SAME_UPPER",
                     group=depth if op.startswith("Depth") else 1)
            )  # fmt: skip
        elif op == "Relu6":
            nodes.append(make("Clip", [*inputs, "zero", "six"], [name]))
        elif op in ("Add", "BiasAdd", "Mul"):
            nodes.append(make(op.replace("Bias", ""), inputs, [name]))
    constants += [
        onnx.numpy_helper.from_array(np.float32(v), n) for n, v in (("zero", 0), ("six", 6))
    ]
    info, kind = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    outputs = [n[0] for n in graph.nodes if n[0].endswith("Predictor/BiasAdd")]
    made = onnx.helper.make_graph(
        nodes, "ssd", [info("Preprocessor/sub", kind, [1, 3, 300, 300])],
        [info(name, kind, None) for name in outputs], constants,
    )  # fmt: skip
    opset = [onnx.helper.make_opsetid("", 11)]
    return onnx.helper.make_model(made, opset_imports=opset, ir_version=8), outputs


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """The full size: 300 x 300, 91 classes, 6.8 million weights."""
    folder = tmp_path_factory.mktemp("ssd")
    graph = SSD()
    return graph, converted(graph, folder), folder


def test_the_full_network_equals_the_graph_run_node_by_node(published):
    _, found, _ = published
    assert found.ok
    boxes, classes, file = found.proof
    for proof in (boxes, classes):
        assert proof.against == "the graph, run node by node"
        assert proof.difference <= 1e-5 * proof.span
    assert file.difference == 0
    assert found.epsilon == 1e-5
    assert "any epsilon inside" in found.findings[0].what


def test_the_full_network_equals_onnx_runtime(published):
    ort = pytest.importorskip("onnxruntime")
    graph, found, _ = published
    model, names = as_onnx(graph)
    image = torch.rand(1, 3, 300, 300, generator=torch.Generator().manual_seed(5)) * 2 - 1
    session = ort.InferenceSession(model.SerializeToString())
    outputs = dict(zip(names, session.run(names, {"Preprocessor/sub": image.numpy()}), strict=True))
    with torch.no_grad():
        ours = found.network(image)
    assert [tuple(o.shape) for o in ours] == [(1, 1917, 4), (1, 1917, 91)]
    for kind, tensor in zip(("BoxEncoding", "Class"), ours, strict=True):
        parts = [v for k, v in outputs.items() if f"{kind}P" in k]
        flat = [p.transpose(0, 2, 3, 1).reshape(1, -1, tensor.shape[2]) for p in parts]
        theirs = np.concatenate(flat, 1)
        assert np.abs(tensor.numpy() - theirs).max() <= 1e-5 * (theirs.max() - theirs.min())


def test_names_are_the_references(published):
    _, found, folder = published
    state = torch.load(folder / "ssd.pth", weights_only=True)
    assert list(state) == list(found.state_dict)
    for name, shape in {
        "backbone.0.0.weight": (32, 3, 3, 3),
        "backbone.0.0/BatchNorm.bias": (32,),
        "backbone.1.depthwise.weight": (32, 1, 3, 3),
        "backbone.1.depthwise/BatchNorm.running_var": (32,),
        "backbone.13.pointwise/BatchNorm.bias": (1024,),
        "extras.3.2.weight": (128, 64, 3, 3),
        "predictors.0.regression.weight": (12, 512, 1, 1),
        "predictors.5.classification.bias": (546,),
    }.items():
        assert tuple(state[name].shape) == shape, name
    SSDMobileNetV1(Sizes()).load_state_dict(state, strict=True)


def test_values_are_the_graphs(published):
    graph, found, _ = published
    held = {name: value for name, op, _, _, value in graph.nodes if op == "Const"}
    state = found.state_dict
    base = "FeatureExtractor/MobilenetV1/Conv2d_3_depthwise"
    kernel = held[f"{base}/depthwise_weights"]
    assert np.array_equal(
        state["backbone.3.depthwise.weight"].numpy(), kernel.transpose(2, 3, 0, 1)
    )
    scale = held[
        "FeatureExtractor/MobilenetV1/MobilenetV1/Conv2d_3_depthwise/BatchNorm/batchnorm/mul"
    ]
    assert np.array_equal(state["backbone.3.depthwise/BatchNorm.weight"].numpy(), scale)
    kernel = held["BoxPredictor_2/ClassPredictor/weights"]
    name = "predictors.2.classification"
    assert np.array_equal(state[f"{name}.weight"].numpy(), kernel.transpose(3, 2, 0, 1))
    assert found.origin[f"{name}.weight"] == "BoxPredictor_2/ClassPredictor/weights"
    norm = torch.nn.BatchNorm2d(64).eval()
    prefix = "backbone.2.depthwise/BatchNorm."
    norm.load_state_dict({k.removeprefix(prefix): v for k, v in state.items() if prefix in k})
    # With nn.BatchNorm2d's default epsilon the layer is the graph's Mul and Add.
    x = torch.rand(1, 64, 2, 2)
    scale, shift = norm.weight[:, None, None], norm.bias[:, None, None]
    assert torch.allclose(norm(x), x * scale + shift, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_batch_normalization(form, tmp_path):
    found = converted(small(form), tmp_path)
    assert found.ok
    assert all(p.difference <= 2e-5 * p.span for p in found.proof if p.limit)
    assert sum(p.ran for p in found.proof) == 3
    assert found.network.predictors[0].classes == 5


def test_the_graphs_own_epsilon_is_kept_in_the_variance(tmp_path):
    graph = small("fused")
    found = converted(graph, tmp_path)
    assert "the graph's epsilon is 0.001" in found.findings[0].what
    held = {name: value for name, op, _, _, value in graph.nodes if op == "Const"}
    base = "FeatureExtractor/MobilenetV1/MobilenetV1/Conv2d_1_depthwise/BatchNorm"
    ours = found.state_dict["backbone.1.depthwise/BatchNorm.running_var"].numpy()
    np.testing.assert_allclose(ours + 1e-5, held[f"{base}/moving_variance"] + 1e-3, rtol=1e-6)


def test_torchs_own_padding_would_be_found_out(tmp_path, monkeypatch):
    def forward(self, x):
        return torch.nn.functional.conv2d(x, self.weight, self.bias, self.stride, 1, 1, self.groups)

    monkeypatch.setattr(SameConv2d, "forward", forward)
    found = converted(small("published"), tmp_path)
    assert not found.ok
    assert "differs from the graph" in repr(found)


@pytest.mark.parametrize("size", [5, 6, 10, 19])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("kernel", [1, 3])
def test_same_padding_is_onnx_runtimes(size, stride, kernel):
    onnx = pytest.importorskip("onnx")
    ort = pytest.importorskip("onnxruntime")
    conv = SameConv2d(2, 3, kernel, stride)
    info, kind = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    node = onnx.helper.make_node(
        "Conv", ["x", "w", "b"], ["y"], strides=[stride] * 2, auto_pad="SAME_UPPER"
    )
    made = onnx.helper.make_graph(
        [node], "same", [info("x", kind, [1, 2, size, size + 1])], [info("y", kind, None)],
        [onnx.numpy_helper.from_array(p.detach().numpy(), n)
         for n, p in (("w", conv.weight), ("b", conv.bias))],
    )  # fmt: skip
    opset = [onnx.helper.make_opsetid("", 11)]
    model = onnx.helper.make_model(made, opset_imports=opset, ir_version=8)
    x = torch.rand(1, 2, size, size + 1)
    session = ort.InferenceSession(model.SerializeToString())
    theirs = session.run(None, {"x": x.numpy()})[0]
    np.testing.assert_allclose(conv(x).detach().numpy(), theirs, atol=1e-6)


def test_the_interpreter_runs_a_real_graph(cases, tmp_path, monkeypatch):
    # P-Net inside of a graph that TensorFlow itself froze, with the weights of Caffe's file: the
    # image is BGR, and the four offsets are y, x, y, x.
    def pool(attrs, x):
        pooled = torch.nn.functional.max_pool2d(x.permute(0, 3, 1, 2), 2, attrs["strides"][1])
        return pooled.permute(0, 2, 3, 1)

    for name, run in {
        "Enter": lambda _, x: x,
        "Greater": lambda _, x, y: x > y,
        "Select": lambda _, chosen, x, y: torch.where(chosen, x, y),
        "MaxPool": pool,
    }.items():
        monkeypatch.setitem(graph_run._OPERATORS, name, run)
    pnet = convert_weights("mtcnn", cases / "mtcnn/caffe", tmp_path).network.pnet
    image = torch.rand(1, 3, 20, 26, generator=torch.Generator().manual_seed(1)) * 2 - 1
    nodes = read_nodes(Source(cases / "tensorflow/mtcnn.pb"))
    fed = image.flip(1).permute(0, 2, 3, 1)
    run = GraphRun(nodes, {"pnet/while/ResizeBilinear": fed})
    theirs = run.value("pnet/while/conv4-2/BiasAdd")[..., [1, 0, 3, 2]].permute(0, 3, 1, 2)
    with torch.no_grad():
        offsets, probabilities = pnet(image)
        logits = run.value("pnet/while/conv4-1/BiasAdd").permute(0, 3, 1, 2)
    assert (offsets - theirs).abs().max() <= 1e-6
    assert (probabilities - logits.softmax(1)).abs().max() <= 1e-6


def test_what_is_no_such_graph_is_refused(tmp_path):
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 29\n"
    one = Graph()
    one.conv("a/Conv2D", "Conv2D", one.const("x", np.zeros((1, 4, 4, 1))), one.const(
        "a/weights", np.zeros((1, 1, 1, 1))), 1)  # fmt: skip
    cut = small("published")
    cut.data = cut.data[: len(cut.data) // 2]
    for data, what in (
        (pointer, "no frozen GraphDef"),
        (one.data, "no SSD-MobileNetV1: backbone.0.0, backbone.1.depthwise"),
        (cut.data, "damaged|no SSD"),
    ):
        (tmp_path / "a.pb").write_bytes(data)
        with pytest.raises(MigrateError, match=what):
            convert_weights("ssd_mobilenet_v1", tmp_path / "a.pb", tmp_path / "a.pth")
    assert not (tmp_path / "a.pth").exists()


def test_a_graph_that_claims_more_than_it_has_is_refused(tmp_path):
    graph = small("published")
    shape = b"".join(ssd_graph.message(2, ssd_graph.number(1, 4096)) for _ in range(2))
    filled = ssd_graph.number(1, 1) + ssd_graph.message(2, shape)
    filled += ssd_graph.message(5, b"\0" * 4)  # one value, to fill 4096 x 4096 with
    entry = ssd_graph.message(1, b"value") + ssd_graph.message(2, ssd_graph.message(8, filled))
    node = ssd_graph.message(1, b"huge") + ssd_graph.message(2, b"Const")
    graph.data += ssd_graph.message(1, node + ssd_graph.message(5, entry))
    (tmp_path / "a.pb").write_bytes(graph.data)
    with pytest.raises(MigrateError, match="claim"):
        convert_weights("ssd_mobilenet_v1", tmp_path / "a.pb", tmp_path / "a.pth")


def run_of(graph, folder, **feeds):
    (folder / "a.pb").write_bytes(graph.data)
    return GraphRun(read_nodes(Source(folder / "a.pb")), feeds)


def test_the_interpreter_stops(tmp_path):
    graph = Graph()
    graph.node("a", "Relu", "b")
    graph.node("b", "Relu", "a")
    graph.node("c", "Loop", "x")
    row = graph.const("row", np.zeros((1, 8192)))
    column = graph.const("column", np.zeros((8192, 1)))
    graph.node("table", "Mul", row, column)
    graph.node("shapes", "Add", row, graph.const("other", np.zeros(3)))
    graph.conv("wide", "Conv2D", graph.const("i", np.zeros((1, 4, 4, 1))), graph.const(
        "k", np.zeros((4096, 4096, 1, 1))), 1)  # fmt: skip
    run = run_of(graph, tmp_path, x=torch.zeros(1))
    for name, what in (
        ("a", "depends on itself"),
        ("c", "'Loop' is not run here"),
        ("nowhere", "no node"),
        ("table", "67,108,864 values"),
        ("shapes", "Add cannot run"),
        ("wide", "values"),
    ):
        with pytest.raises(MigrateError, match=what):
            run.value(name)
