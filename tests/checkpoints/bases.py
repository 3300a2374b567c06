"""A small sound file of each format, by a writer that is not ours."""

import io
import pickle
import struct
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

from tests.checkpoints.schemas import caffe, mindspore, tensorflow

# TensorFlow's DataType.
FLOAT, INT32, STRING, HALF = 1, 3, 7, 19


@dataclass(frozen=True)
class Base:
    """Files that belong together; ``main`` is the one to load, ``reader`` the module that does."""

    reader: str
    main: str
    files: dict

    def put(self, folder):
        """Write them, and return the path of the main one."""
        for name, content in self.files.items():
            (folder / name).write_bytes(content)
        return folder / self.main


def safetensors():
    from safetensors.torch import save

    state = {
        "fc.weight": torch.arange(12.0).reshape(3, 4),
        "fc.bias": torch.ones(3, dtype=torch.bfloat16),
        "steps": torch.tensor(7),
        "empty": torch.zeros(0, 2),
    }
    return Base("safetensors_file", "a.safetensors", {"a.safetensors": save(state, {"by": "a"})})


def ckpt():
    file = mindspore.Checkpoint()
    add_ckpt(file, "fc.weight", (2, 3), "Float32", np.arange(6, dtype="f4").tobytes())
    for half in (np.arange(4, dtype="f2"), np.arange(4, 8, dtype="f2")):
        add_ckpt(file, "big", (8,), "Float16", half.tobytes())
    add_ckpt(file, "moments.fc.weight", (2, 3), "Float32", np.ones(6, "f4").tobytes())
    add_ckpt(file, "learning_rate", (0,), "Float32", np.float32(0.01).tobytes())
    add_ckpt(file, "note", (0,), "str", "text".encode("utf-32-le"))
    return Base("mindspore_ckpt", "a.ckpt", {"a.ckpt": file.SerializeToString()})


def add_ckpt(file, name, dims, kind, content):
    value = file.value.add(tag=name)
    value.tensor.dims.extend(dims)
    value.tensor.tensor_type, value.tensor.tensor_content = kind, content


def caffemodel():
    net = caffe.NetParameter(name="net", input=["data"])
    layer = net.layer.add(name="conv", type="Convolution", bottom=["data"], top=["conv"])
    add_blob(layer, np.arange(16.0), (2, 2, 2, 2))
    add_blob(layer, np.arange(2.0), (2,))
    add_blob(net.layer.add(name="bn", type="BatchNorm"), np.ones(2), (2,))
    net.layer.add(name="relu", type="ReLU", bottom=["conv"])
    return Base("caffemodel", "a.caffemodel", {"a.caffemodel": net.SerializeToString()})


def old_caffemodel():
    net = caffe.NetParameter(name="net")
    layer = net.layers.add(name="fc", type=14, bottom=["data"])
    for count, channels, height, width in ((1, 1, 2, 3), (1, 1, 1, 2)):
        blob = layer.blobs.add(num=count, channels=channels, height=height, width=width)
        blob.data.extend(range(count * channels * height * width))
    return Base("caffemodel", "old.caffemodel", {"old.caffemodel": net.SerializeToString()})


def add_blob(layer, values, shape):
    blob = layer.blobs.add()
    blob.shape.dim.extend(shape)
    blob.data.extend(values)


def tf_shape(message, shape):
    for size in shape:
        message.dim.add(size=size)


def add_node(graph, name, op, inputs=(), **attrs):
    """Add a node; an attribute is a dict of AttrValue's fields."""
    node = graph.node.add(name=name, op=op, input=inputs)
    for key, value in attrs.items():
        entry = node.attr.add(key=key)
        for field, content in value.items():
            if isinstance(content, dict):
                for inner, list_content in content.items():
                    getattr(getattr(entry.value, field), inner).extend(list_content)
            else:
                setattr(entry.value, field, content)
    return node


def add_constant(graph, name, dtype, shape, **values):
    """Add a constant; the values are fields of TensorProto."""
    node = add_node(graph, name, "Const", dtype={"type": dtype})
    tensor = node.attr.add(key="value").value.tensor
    tensor.dtype = dtype
    tf_shape(tensor.tensor_shape, shape)
    for field, content in values.items():
        if isinstance(content, bytes) and field != "string_val":
            setattr(tensor, field, content)
        else:
            getattr(tensor, field).extend(content)
    return node


def graph_def():
    graph = tensorflow.GraphDef()
    add_node(graph, "x", "Placeholder", dtype={"type": FLOAT})
    add_constant(graph, "w", FLOAT, (2, 3), tensor_content=np.arange(6, dtype="<f4").tobytes())
    add_constant(graph, "b", FLOAT, (3,), float_val=[1.5])
    add_constant(graph, "half", HALF, (2,), half_val=[0x3C00, 0x4000])
    add_constant(graph, "axes", INT32, (2,), int_val=[0, -1])
    add_constant(graph, "words", STRING, (1,), string_val=[b"a"])
    add_node(
        graph, "conv", "Conv2D", ["x", "w"],
        strides={"list": {"i": [1, 2, 2, 1]}}, padding={"s": b"SAME"}, epsilon={"f": 0.001},
        data_format={"s": b"NHWC"}, T={"type": FLOAT}, use={"b": True},
    )  # fmt: skip
    graph.versions.producer = 27
    return graph


def frozen_graph():
    return Base("frozen_graph", "a.pb", {"a.pb": graph_def().SerializeToString()})


def saved_model():
    model = tensorflow.SavedModel(saved_model_schema_version=1)
    meta = model.meta_graphs.add()
    meta.meta_info_def.tags.append("serve")
    meta.meta_info_def.tensorflow_version = "2.4.0"
    meta.graph_def.CopyFrom(graph_def())
    return Base("frozen_graph", "saved_model.pb", {"saved_model.pb": model.SerializeToString()})


def snappy(data):
    """Pack with literals and copies, as format_description.txt has them."""
    out, at, literal = bytearray(varint(len(data))), 0, bytearray()

    def flush():
        for start in range(0, len(literal), 60):
            piece = literal[start : start + 60]
            out.extend([len(piece) - 1 << 2, *piece])
        literal.clear()

    while at < len(data):
        found = data.rfind(data[at : at + 4], max(0, at - 2000), at)
        if found < 0 or at + 4 > len(data):
            literal.append(data[at])
            at += 1
            continue
        length = 4
        while length < 60 and at + length < len(data) and data[found + length] == data[at + length]:
            length += 1
        flush()
        offset = at - found
        if length < 12 and offset < 2048:
            out.extend([(offset >> 8) << 5 | (length - 4) << 2 | 1, offset & 255])
        else:
            out.extend([length - 1 << 2 | 2, offset & 255, offset >> 8])
        at += length
    flush()
    return bytes(out)


def varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def table(pairs, packed=False, per_block=4):
    """Return a table as LevelDB's table_format.md describes it, with TensorFlow's magic number."""
    out = bytearray()

    def block(entries):
        body, restarts, last = bytearray(), [], b""
        for number, (key, value) in enumerate(entries):
            shared = 0
            if number % 3:
                while shared < min(len(key), len(last)) and key[shared] == last[shared]:
                    shared += 1
            else:
                restarts.append(len(body))
            body += varint(shared) + varint(len(key) - shared) + varint(len(value))
            body += key[shared:] + value
            last = key
        body += struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))
        written = snappy(bytes(body)) if packed else bytes(body)
        place = varint(len(out)) + varint(len(written))
        out.extend(written + bytes([packed]) + b"\0\0\0\0")
        return place

    pairs = sorted(pairs)
    blocks = [pairs[at : at + per_block] for at in range(0, len(pairs), per_block)]
    index = [(entries[-1][0], block(entries)) for entries in blocks]
    handles = block([]) + block(index)
    return bytes(out) + handles.ljust(40, b"\0") + bytes.fromhex("57fb808b247547db")


def bundle_files(arrays, shards=1, packed=False, slices=(), stem="model.ckpt"):
    """Return the files of a checkpoint: name to array, spread over the shards in turn."""
    header = tensorflow.BundleHeaderProto(num_shards=shards)
    header.version.producer = 1
    pairs, data = [(b"", header.SerializeToString())], [bytearray() for _ in range(shards)]
    numbers = {"float32": 1, "float64": 2, "int32": 3, "int64": 9, "float16": 19, "object": STRING}
    for number, (name, array) in enumerate(sorted(arrays.items())):
        content = array.tobytes() if array.dtype != object else b"\1a"
        shard = number % shards
        entry = tensorflow.BundleEntryProto(
            dtype=numbers[array.dtype.name], shard_id=shard, offset=len(data[shard]),
            size=len(content), crc32c=1,
        )  # fmt: skip
        tf_shape(entry.shape, array.shape)
        if name in slices:
            entry.slices.add(start=1)
        data[shard] += content
        pairs.append((name.encode(), entry.SerializeToString()))
    files = {f"{stem}.index": table(pairs, packed)}
    for shard, content in enumerate(data):
        files[f"{stem}.data-{shard:05}-of-{shards:05}"] = bytes(content)
    return files


def bundle(packed=False):
    arrays = {
        "conv/kernel": np.arange(8, dtype="f4").reshape(2, 2, 2, 1),
        "conv/kernel/Adam": np.ones((2, 2, 2, 1), "f4"),
        "conv/kernel/Adam_1": np.ones((2, 2, 2, 1), "f4"),
        "conv/bias": np.arange(3, dtype="f2"),
        "global_step": np.array(1875, "i8"),
        "notes": np.array(["a"], object),
    }
    return Base("tensor_bundle", "model.ckpt.index", bundle_files(arrays, 2, packed))


def packed_bundle():
    return bundle(packed=True)


def onnx():
    from onnx import TensorProto, helper, numpy_helper

    weight = numpy_helper.from_array(np.arange(6, dtype="f4").reshape(2, 3), "w")
    typed = helper.make_tensor("b", TensorProto.FLOAT, (3,), [1.0, 2.0, 3.0])
    half = helper.make_tensor("h", TensorProto.FLOAT16, (2,), [1.0, 2.0])
    many = helper.make_tensor("m", TensorProto.INT64, (20,), range(-10, 10))
    inner = helper.make_graph(
        [helper.make_node("Identity", ["iw"], ["io"])], "branch", [],
        [helper.make_tensor_value_info("io", TensorProto.FLOAT, (2,))],
        [numpy_helper.from_array(np.ones(2, "f4"), "iw")],
    )  # fmt: skip
    nodes = [
        helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.float32([4, 5]))),
        helper.make_node("If", ["p"], ["r"], name="if", then_branch=inner, else_branch=inner),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 2))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 3))],
        [weight, typed, half, many],
    )  # fmt: skip
    model = helper.make_model(graph, producer_name="test", ir_version=8)
    return Base("onnx_file", "a.onnx", {"a.onnx": model.SerializeToString()})


def _hdf5(**options):
    import h5py

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.h5"
        with h5py.File(path, "w", **options) as file:
            file.attrs["keras_version"] = "2.4.0"
            group = file.create_group("model_weights/conv/conv")
            group.create_dataset("kernel:0", data=np.arange(12, dtype="f4").reshape(3, 4))
            group.create_dataset("bias:0", data=np.arange(4, dtype="f2"))
            file.create_dataset(
                "packed", data=np.arange(64, dtype="f8").reshape(8, 8), chunks=(4, 4),
                compression="gzip",
            )  # fmt: skip
            file["optimizer_weights/m:0"] = np.ones(3, "f4")
        return path.read_bytes()


def hdf5():
    return Base("hdf5", "a.h5", {"a.h5": _hdf5()})


def new_hdf5():
    return Base("hdf5", "new.h5", {"new.h5": _hdf5(libver="latest")})


def _training():
    """Return what a training script saves: tensors, views of them, and other things."""
    w = torch.arange(12.0).reshape(3, 4)
    state = {"fc.weight": w, "fc.tied": w.t(), "fc.bias": torch.ones(3).half()}
    return {"epoch": 3, "state_dict": state, "args": {"lr": 0.1, "names": ["a", "b"]}}


def torch_zip():
    return Base("torch_zip", "a.pth", {"a.pth": in_memory(torch.save, _training())})


def torch_legacy():
    old = partial(torch.save, _use_new_zipfile_serialization=False)
    return Base("torch_legacy", "a.pth", {"a.pth": in_memory(old, _training())})


def plain_pickle():
    arrays = {"fc": {"weight": np.arange(6.0).reshape(2, 3), "bias": np.ones(2, "f2")}}
    return Base("pickle_file", "a.pkl", {"a.pkl": pickle.dumps(arrays)})


def npy():
    arrays = {"fc": {"weight": np.arange(6.0).reshape(2, 3), "bias": np.ones(2, "f2")}}
    file = io.BytesIO()
    np.save(file, arrays)
    return Base("npy", "a.npy", {"a.npy": file.getvalue()})


def npz():
    file = io.BytesIO()
    np.savez(file, weight=np.arange(6.0).reshape(2, 3), bias=np.ones(2, "f2"))
    return Base("npy", "a.npz", {"a.npz": file.getvalue()})


def packed_npz():
    file = io.BytesIO()
    np.savez_compressed(file, weight=np.arange(600.0).reshape(20, 30), bias=np.ones(2, "f2"))
    return Base("npy", "a.npz", {"a.npz": file.getvalue()})


def darknet():
    cfg = (
        "[net]\nchannels=3\nheight=8\nwidth=8\n[convolutional]\nbatch_normalize=1\nfilters=4\n"
        "size=3\nstride=1\npad=1\nactivation=leaky\n[route]\nlayers=-1\n[convolutional]\n"
        "filters=6\nsize=1\nactivation=linear\n[yolo]\nmask=0\nanchors=1,2\nclasses=1\nnum=1\n"
    )
    floats = np.linspace(0.1, 1, 4 * 4 + 4 * 27 + 6 + 24, dtype="<f4")
    weights = np.array([0, 2, 5, 64, 0], "<i4").tobytes() + floats.tobytes()
    return Base("darknet", "a.weights", {"a.weights": weights, "a.cfg": cfg.encode()})


BASES = {
    f.__name__: f
    for f in (
        safetensors, ckpt, caffemodel, old_caffemodel, frozen_graph, saved_model, bundle,
        packed_bundle, onnx, hdf5, new_hdf5, torch_zip, torch_legacy, plain_pickle, npy, npz,
        packed_npz, darknet,
    )
}  # fmt: skip


def in_memory(save, *arguments):
    """Return what ``save(*arguments, file)`` writes."""
    file = io.BytesIO()
    save(*arguments, file)
    return file.getvalue()
