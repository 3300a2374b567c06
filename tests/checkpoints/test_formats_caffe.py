"""Caffe's models, against OpenCV and Google's protobuf."""

from pathlib import Path

import numpy as np
import pytest
import torch

from migrate_kit.checkpoints.formats import caffemodel
from migrate_kit.checkpoints.formats.source import Source
from migrate_kit.errors import MigrateError
from tests.checkpoints.bases import add_blob
from tests.checkpoints.schemas import caffe, loose_caffe


def read(net):
    content = net if isinstance(net, bytes) else net.SerializeToString()
    source = Source.of_bytes(Path("a.caffemodel"), content)
    assert caffemodel.recognises(source)
    return caffemodel.read(source)


def one_layer(kind, *shapes):
    net = caffe.NetParameter(name="net")
    layer = net.layer.add(name="a", type=kind)
    for shape in shapes:
        add_blob(layer, np.arange(np.prod(shape)), shape)
    return net


@pytest.mark.parametrize(("name", "tensors"), [("det1", 13), ("det2", 18), ("det3", 21)])
def test_a_real_model_is_what_opencv_and_protobuf_read(cases, name, tensors):
    cv2 = pytest.importorskip("cv2")
    folder = cases / "mtcnn/caffe"
    found = read((folder / f"{name}.caffemodel").read_bytes())
    assert len(found.state_dict) == tensors
    net = cv2.dnn.readNetFromCaffe(
        str(folder / f"{name}.prototxt"), str(folder / f"{name}.caffemodel")
    )
    compared = 0
    for layer in map(net.getLayer, net.getLayerNames()):
        for part, blob in zip(("weight", "bias"), layer.blobs, strict=False):
            ours = found.state_dict[f"{layer.name}.{part}"].numpy()
            assert np.array_equal(ours.ravel(), blob.ravel())
            compared += 1
    # OpenCV leaves out one layer that the prototxt of det2 does not use.
    assert compared >= tensors - 2
    message = caffe.NetParameter()
    message.ParseFromString((folder / f"{name}.caffemodel").read_bytes())
    for layer in message.layer:
        for part, blob in zip(("weight", "bias"), layer.blobs, strict=False):
            ours = found.state_dict[f"{layer.name}.{part}"]
            assert tuple(ours.shape) == tuple(blob.shape.dim)
            assert ours.flatten().tolist() == list(blob.data)


@pytest.mark.parametrize(
    ("kind", "shapes", "parts"),
    [
        ("Convolution", [(4, 3, 2, 2), (4,)], ["weight", "bias"]),
        ("InnerProduct", [(4, 3)], ["weight"]),
        ("PReLU", [(4,)], ["weight"]),
        ("Scale", [(4,), (4,)], ["weight", "bias"]),
        ("BatchNorm", [(4,), (4,), (1,)], ["blobs.0", "blobs.1", "blobs.2"]),
        ("LSTM", [(4, 3), (4,), (4, 1)], ["blobs.0", "blobs.1", "blobs.2"]),
        ("Convolution", [(4, 3), (4,), (1,)], ["weight", "bias", "blobs.2"]),
    ],
)
def test_blobs_are_named_by_their_role(kind, shapes, parts):
    state = read(one_layer(kind, *shapes)).state_dict
    assert list(state) == [f"a.{part}" for part in parts]
    for tensor, shape in zip(state.values(), shapes, strict=True):
        assert torch.equal(tensor, torch.arange(float(np.prod(shape))).reshape(shape))


@pytest.mark.parametrize(
    ("kind", "lengths", "shapes"),
    [
        (14, [(1, 1, 2, 3), (1, 1, 1, 2)], [(2, 3), (2,)]),
        (4, [(2, 3, 1, 1), (1, 1, 1, 2)], [(2, 3, 1, 1), (2,)]),
        (4, [(1, 1, 3, 3), (1, 1, 1, 1)], [(1, 1, 3, 3), (1,)]),
        (14, [(1, 1, 1, 3), (1, 1, 1, 1)], [(1, 3), (1,)]),
        (39, [(2, 1, 4, 4)], [(2, 1, 4, 4)]),
        (14, [(2, 3, 1, 1)], [(2, 3, 1, 1)]),
    ],
)
def test_an_old_layer_drops_leading_ones(kind, lengths, shapes):
    net = caffe.NetParameter(name="net")
    layer = net.layers.add(name="a", type=kind)
    for length in lengths:
        blob = layer.blobs.add()
        blob.num, blob.channels, blob.height, blob.width = length
        blob.data.extend(range(np.prod(length)))
    state = read(net).state_dict
    assert list(state) == ["a.weight", "a.bias"][: len(lengths)]
    assert [tuple(tensor.shape) for tensor in state.values()] == shapes
    assert all(t.flatten().tolist() == list(range(t.numel())) for t in state.values())


@pytest.mark.parametrize("schema", [caffe, loose_caffe], ids=["packed", "one by one"])
def test_values_in_single_and_double(schema):
    net = schema.NetParameter(name="net")
    for name, field in (("a", "data"), ("b", "double_data")):
        blob = net.layer.add(name=name, type="PReLU").blobs.add()
        blob.shape.dim.append(2)
        getattr(blob, field).extend([1.5, -2.25])
    state = read(net).state_dict
    assert [(t.dtype, t.tolist()) for t in state.values()] == [
        (torch.float32, [1.5, -2.25]),
        (torch.float64, [1.5, -2.25]),
    ]


def test_a_network_without_blobs_is_a_finding():
    found = read(one_layer("Convolution"))
    assert found.findings[0].level == "error"
    assert found.findings[0].what == "topology without weights: 1 layer and no blobs"


def two_of_a_name():
    net = one_layer("PReLU", (2,))
    net.layer.add().CopyFrom(net.layer[0])
    return net


def with_shape(*shape):
    net = one_layer("PReLU", (2,))
    del net.layer[0].blobs[0].shape.dim[:]
    net.layer[0].blobs[0].shape.dim.extend(shape)
    return net


@pytest.mark.parametrize(
    "net",
    [two_of_a_name(), with_shape(3), with_shape(-2), with_shape(1 << 40, 1 << 40), with_shape()],
    ids=["two of a name", "too few", "negative", "huge", "no shape"],
)
def test_damage_is_said(net):
    with pytest.raises(MigrateError, match="damaged"):
        read(net)
