"""Convert published weights to the .pth files that Cambricon's guide asks for.

Needs only numpy and torch, and takes the guide's arguments:
python convert_weight.py -model_name yolov3 -cfg_file yolov3.cfg
    -original_name yolov3.weights -save_name yolov3.pth
python convert_weight.py -model_name mtcnn
    -original_name pnet.npy rnet.npy onet.npy -save_name pnet.pth rnet.pth onet.pth

yolov2, yolov3: any .cfg without fully connected layers. mtcnn: .npy of TropComplique or facenet.
ssd_mobilenet_v1: a frozen graph whose batch normalizations are constants (not tried on the
original file, of which no public copy was found). mobilenetv1: a training checkpoint. Nothing is
compared with the original here; mk.convert_weights does that.
"""

import argparse
import math
import pickle
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

State = dict[str, torch.Tensor]
# A flattened channel x height x width in MTCNN's first fully connected layers.
# The last pointwise convolution under the names of the two public implementations.
MOBILENET = ("model.13.3.weight", "stage3.1.3.weight")
FLAT = {576: (3, 3, 64), 1152: (3, 3, 128)}


def layers(cfg: Path) -> list[tuple[str, dict[str, str]]]:
    """Return the sections of a .cfg; of two equal keys Darknet takes the first."""
    found: list[tuple[str, dict[str, str]]] = []
    for raw in cfg.read_text(errors="replace").splitlines():
        line = "".join(raw.split()).partition("#")[0]
        if line.startswith("["):
            found.append((line.strip("[]"), {}))
        elif "=" in line and found:
            found[-1][1].setdefault(*line.split("=", 1))
    return found


def shapes(cfg: Path) -> list[tuple[str, tuple[int, ...]]]:
    """Return every tensor's name and shape in the order of the .weights file."""
    (_, net), *rest = layers(cfg) or sys.exit(f"{cfg.name} is no .cfg: it has no [section]")
    channels, number = int(net["channels"]), 0
    parts: list[tuple[str, tuple[int, ...]]] = []
    out: list[int] = []
    for index, (kind, options) in enumerate(rest):
        if kind == "convolutional":
            number += 1
            n, size = int(options["filters"]), int(options.get("size", 1))
            weight = (n, channels // int(options.get("groups", 1)), size, size)
            names = ["bias"]
            if options.get("batch_normalize") == "1":
                names += ["weight", "running_mean", "running_var"]
            owner = "bn" if len(names) > 1 else "conv"
            parts += [(f"models.{index}.{owner}{number}.{name}", (n,)) for name in names]
            parts.append((f"models.{index}.conv{number}.weight", weight))
            channels = n
        elif kind == "route":
            total = [
                out[int(i) + index if int(i) < 0 else int(i)] for i in options["layers"].split(",")
            ]
            channels = sum(total) // int(options.get("groups", 1))
        elif kind in ("sam", "scale_channels"):
            other = int(options["from"])
            channels = out[other + index if other < 0 else other]
        elif kind in ("reorg", "reorg3d"):
            channels *= int(options.get("stride", 1)) ** 2
        elif kind not in (
            "maxpool",
            "avgpool",
            "upsample",
            "dropout",
            "shortcut",
            "yolo",
            "region",
        ):
            sys.exit(f"a layer [{kind}] is not converted here")
        out.append(channels)
    return parts


def darknet(weights: Path, cfg: Path) -> State:
    """Read a .weights file; the version at its start says how long the header is."""
    raw, parts = weights.read_bytes(), shapes(cfg)
    needed = sum(math.prod(shape) for _, shape in parts)
    if len(raw) < 16:
        sys.exit(f"{weights.name} is no .weights file: it has {len(raw)} bytes")
    major, minor = (int(n) for n in np.frombuffer(raw, "<i4", 2))
    start = 20 if major * 10 + minor >= 2 else 16
    if len(raw) - start != 4 * needed:
        sys.exit(
            f"{cfg.name} needs {needed:,} floats, {weights.name} has {(len(raw) - start) / 4:,g}"
        )
    floats, at = np.frombuffer(raw, "<f4", needed, start), 0
    state: State = {}
    for name, shape in parts:
        value = floats[at : at + math.prod(shape)].reshape(shape).copy()
        at += value.size
        # A variance below zero is rounding, and its root would be NaN.
        state[name] = torch.from_numpy(np.maximum(value, 0) if "running_var" in name else value)
    return state


class Arrays(pickle.Unpickler):
    """A pickle of arrays and dicts; anything else in it is refused."""

    def find_class(self, module: str, name: str) -> Any:
        """Return what arrays are made with."""
        if module.replace("._core", ".core") == "numpy.core.multiarray" and name == "_reconstruct":
            return np.empty(0).__reduce__()[0]
        if (module, name) in (("numpy", "ndarray"), ("numpy", "dtype")):
            return getattr(np, name)
        if (module, name) == ("_codecs", "encode"):
            return lambda text, encoding: text.encode(encoding)
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        sys.exit(f"the file asks for {module}.{name}, which is no array")


def mtcnn(path: Path) -> State:
    """Read an .npy that holds a dict: TropComplique's as it is, facenet's turned into it."""
    with path.open("rb") as file:
        head = file.read(10)
        if not head.startswith(b"\x93NUMPY"):
            sys.exit(f"{path.name} is no .npy file")
        file.seek(10 + int.from_bytes(head[8:10], "little"))
        # A pickle of Python 2 holds its bytes as text.
        held = Arrays(file, encoding="latin1").load()
    held = held.item() if isinstance(held, np.ndarray) and held.dtype == object else held
    if not isinstance(held, dict) or not held:
        sys.exit(f"{path.name} holds no dict of layers")
    state: State = {}
    for layer, value in held.items():
        if isinstance(value, np.ndarray):
            state[layer] = torch.from_numpy(value.copy())
            continue
        own = layer.lower().replace("-", "_")
        own = own if "_" in own else f"features.{own}"
        for key, name in (("weights", "weight"), ("biases", "bias"), ("alpha", "weight")):
            if key not in value:
                continue
            array = value[key].T  # HWIO becomes OIWH: facenet's image is transposed
            if array.ndim == 2 and array.shape[1] in FLAT:
                height, width, channels = FLAT[array.shape[1]]
                array = array.reshape(-1, height, width, channels).transpose(0, 3, 1, 2)
                array = array.reshape(len(array), -1)
            state[f"{own}.{name}"] = torch.from_numpy(array.copy())
    return state


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a protobuf message: number, and bytes or the number."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        kind = key & 7
        size = {1: 8, 5: 4}.get(kind) or (varint() if kind in (0, 2) else sys.exit("no protobuf"))
        if kind == 0:
            yield key >> 3, size
            continue
        yield key >> 3, data[at : at + size]
        at += size


def constants(path: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the float constants of a frozen graph."""
    for number, node in fields(path.read_bytes()):
        name = next((v.decode() for n, v in fields(node) if n == 1), "") if number == 1 else ""
        for _, entry in (f for f in fields(node) if number == 1 and f[0] == 5):
            attr = dict(fields(entry))
            tensor = dict(fields(dict(fields(attr.get(2, b""))).get(8, b"")))
            if attr.get(1) != b"value" or tensor.get(1) != 1:
                continue
            axes = [dict(fields(v)).get(1, 0) for n, v in fields(tensor.get(2, b"")) if n == 2]
            values = np.frombuffer(tensor.get(4) or tensor.get(5, b""), "<f4")
            if values.size == math.prod(axes):
                yield name, torch.from_numpy(values.reshape(axes).copy())


def ssd_mobilenet_v1(path: Path) -> State:
    """Read a frozen graph under the names of MLPerf's reference, with nn.BatchNorm2d."""
    state: State = {}
    for name, value in constants(path):
        block = re.search(r"MobilenetV1/Conv2d_(\d+)(?:_(depthwise|pointwise))?/(.*)", name)
        extra = re.search(r"_pointwise_(\d)_Conv2d_(\d)_.*/(\w+)$", name)
        head = re.search(r"BoxPredictor_(\d)/(Box|Class)\w+/(\w+)$", name)
        if name.endswith(("gamma", "moving_variance")):
            sys.exit(f"{name}: only graphs whose batch normalizations are constants")
        if extra:
            key = f"extras.{int(extra[2]) - 2}.{0 if extra[1] == '1' else 2}"
        elif head:
            key = f"predictors.{head[1]}.{'regression' if head[2] == 'Box' else 'classification'}"
        elif block:
            key = f"backbone.{block[1]}.{block[2] or '0'}"
        else:
            continue
        if value.ndim == 4:
            depthwise = key.endswith("depthwise")
            order = (2, 3, 0, 1) if depthwise else (3, 2, 0, 1)
            state[f"{key}.weight"] = value.permute(order).contiguous()
        elif value.ndim == 1:
            norm = "" if extra or head else "/BatchNorm"
            state[f"{key}{norm}.{'weight' if name.endswith('mul') else 'bias'}"] = value
    for key in [k for k in state if k.endswith("depthwise/BatchNorm.weight")]:
        norm = key.removesuffix("weight")
        state[f"{norm}running_mean"] = torch.zeros_like(state[key])
        # The layer only multiplies and adds: sqrt(running_var + 1e-5) has to be 1.
        state[f"{norm}running_var"] = torch.ones_like(state[key]) - 1e-5
    return state or sys.exit(f"{path.name} holds no weights of SSD-MobileNetV1")


def mobilenetv1(path: Path) -> State:
    """Read a training checkpoint; keep its state_dict."""
    with path.open("rb") as file:
        # A zip archive, or the pickle of protocol 2 that torch wrote before 1.6.
        if file.read(2) not in (b"PK", b"\x80\x02"):
            sys.exit(f"{path.name} is no file of torch.save")
    held = torch.load(path, map_location="cpu", weights_only=True)
    state = held.get("state_dict", held) if isinstance(held, dict) else None
    tensors = isinstance(state, dict) and all(isinstance(v, torch.Tensor) for v in state.values())
    if state is None or not tensors or not any(key.endswith(MOBILENET) for key in state):
        sys.exit(f"{path.name} holds no state_dict of MobileNetV1")
    wrapped = all(key.startswith("module.") for key in state)
    return {key.removeprefix("module.") if wrapped else key: v for key, v in state.items()}


def write(state: State, target: Path) -> None:
    """Write to another name and rename it: what fails leaves the old file whole."""
    temporary = target.with_name(f"{target.name}.partial")
    try:
        # The stream of torch before 1.6: Catch's torch 1.3 reads no other.
        torch.save(state, temporary, _use_new_zipfile_serialization=False)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def main() -> None:
    """Convert what the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("-original_path", type=Path, default=Path())
    parser.add_argument("-original_name", nargs="+", required=True)
    parser.add_argument("-save_model_path", type=Path, default=Path())
    parser.add_argument("-save_name", nargs="+", required=True)
    parser.add_argument("-cfg_file", type=Path)
    parser.add_argument("-model_name", required=True)
    given = parser.parse_args()
    model = given.model_name.lower()
    if model in ("yolov2", "yolov3") and given.cfg_file is None:
        sys.exit("yolov2 and yolov3 need -cfg_file")
    readers = {
        "yolov2": lambda path: darknet(path, given.cfg_file),
        "yolov3": lambda path: darknet(path, given.cfg_file),
        "mtcnn": mtcnn,
        "ssd_mobilenet_v1": ssd_mobilenet_v1,
        "mobilenetv1": mobilenetv1,
    }
    if model not in readers or len(given.original_name) != len(given.save_name):
        sys.exit(f"-model_name is one of {', '.join(readers)}; -save_name has a name a file")
    given.save_model_path.mkdir(parents=True, exist_ok=True)
    sources = [given.original_path / name for name in given.original_name]
    targets = [given.save_model_path / name for name in given.save_name]
    inputs = {path.resolve() for path in (*sources, given.cfg_file) if path is not None}
    for source, target in zip(sources, targets, strict=True):
        if target.resolve() in inputs:
            sys.exit(f"{target} is an input: name another file to write")
        for path in (source, given.cfg_file):
            if path is not None and not path.is_file():
                sys.exit(f"there is no file {path}")
        converted = readers[model](source)
        write(converted, target)
        print(f"{target}: {len(converted)} tensor{'s' * (len(converted) != 1)}")


if __name__ == "__main__":
    try:
        main()
    except (
        OSError, ValueError, TypeError, LookupError, AttributeError, RuntimeError, EOFError,
        ArithmeticError, pickle.UnpicklingError,
    ) as error:  # fmt: skip
        said = str(error).partition("\n")[0][:200]
        sys.exit(f"the files are damaged or no weights of this network: {said!r}")
