"""A frozen SSD-MobileNetV1 graph with the names and shapes of the published one, byte by byte.

The published file could not be had. Its names are those that MLPerf's reference reads.
"""

import struct
from itertools import pairwise

import numpy as np

DEPTH = (32, 64, 128, 128, 256, 256, 512, 512, 512, 512, 512, 512, 1024, 1024)
EXTRAS = ((256, 512), (128, 256), (128, 256), (64, 128))
ANCHORS = (3, 6, 6, 6, 6, 6)
STRIDES = (2, 1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1)
TRUNK = "FeatureExtractor/MobilenetV1"


def varint(value):
    out = bytearray()
    while True:
        out.append((value & 127) | (128 if value > 127 else 0))
        value >>= 7
        if not value:
            return bytes(out)


def message(number, payload):
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def number(index, value):
    return varint(index << 3) + varint(value)


def text(value):
    return message(2, value.encode())


def real(value):
    return varint(4 << 3 | 5) + struct.pack("<f", value)


def ints(*values):
    return message(1, message(3, b"".join(varint(v) for v in values)))


def tensor(array):
    shape = b"".join(message(2, number(1, length)) for length in array.shape)
    return message(8, number(1, 1) + message(2, shape) + message(4, array.astype("<f4").tobytes()))


class Graph:
    """Nodes as bytes, and as (name, op, inputs, attributes, value) for another interpreter."""

    def __init__(self):
        self.data = b""
        self.nodes = []

    def node(self, name, op, *inputs, value=None, **attrs):
        out = message(1, name.encode()) + message(2, op.encode())
        out += b"".join(message(3, i.encode()) for i in inputs)
        plain = dict(attrs)
        if value is not None:
            attrs = {"dtype": number(6, 1), "value": tensor(value), **attrs}
        for key, attr in attrs.items():
            out += message(5, message(1, key.encode()) + message(2, attr))
        self.data += message(1, out)
        self.nodes.append((name, op, inputs, plain, value))
        return name

    def const(self, name, value):
        return self.node(name, "Const", value=np.asarray(value, np.float32))

    def conv(self, name, op, x, kernel, stride):
        return self.node(
            name, op, x, kernel, strides=ints(1, stride, stride, 1), padding=text("SAME"),
            data_format=text("NHWC"),
        )  # fmt: skip


class SSD(Graph):
    """The graph, in one of three forms.

    ``published``: the scale of a batch normalization is in the weights of a convolution, and a
    constant after a depthwise one. ``fused``: FusedBatchNorm everywhere. ``separate``: as an old
    TensorFlow wrote it, with Rsqrt, Mul and Sub of constants.
    """

    def __init__(self, form="published", width=1.0, classes=91, seed=0):
        super().__init__()
        self.form, self.random = form, np.random.RandomState(seed)
        widths = [max(8, int(w * width)) for w in DEPTH]
        x = self.node("image_tensor", "Placeholder", dtype=number(6, 4))
        x = self.node("ToFloat", "Cast", x)
        x = self.node("Preprocessor/mul", "Mul", self.const("Preprocessor/mul/x", 2 / 255), x)
        x = self.node("Preprocessor/sub", "Sub", x, self.const("Preprocessor/sub/y", 1.0))
        x = self.block("Conv2d_0", "Conv2D", x, (3, 3, 3, widths[0]), 2)
        maps = []
        for index, (before, after) in enumerate(pairwise(widths), 1):
            name, stride = f"Conv2d_{index}", STRIDES[index]
            shape = (3, 3, before, 1)
            x = self.block(f"{name}_depthwise", "DepthwiseConv2dNative", x, shape, stride)
            x = self.block(f"{name}_pointwise", "Conv2D", x, (1, 1, before, after), 1)
            if index in (11, 13):
                maps.append((x, after))
        for index, (middle, after) in enumerate(EXTRAS, 2):
            middle, after = int(middle * width), int(after * width)  # noqa: PLW2901
            last = maps[-1][1]
            base = f"{TRUNK}/Conv2d_13_pointwise"
            x = self.biased(f"{base}_1_Conv2d_{index}_1x1_{middle}", x, (1, 1, last, middle), 1)
            x = self.node(f"{base}_1_Conv2d_{index}/Relu6", "Relu6", x)
            x = self.biased(f"{base}_2_Conv2d_{index}_3x3_s2_{after}", x, (3, 3, middle, after), 2)
            x = self.node(f"{base}_2_Conv2d_{index}/Relu6", "Relu6", x)
            maps.append((x, after))
        for index, ((x, channels), anchors) in enumerate(zip(maps, ANCHORS, strict=True)):
            for kind, each in (("BoxEncoding", 4), ("Class", classes)):
                name = f"BoxPredictor_{index}/{kind}Predictor"
                y = self.biased(name, x, (1, 1, channels, anchors * each), 1)
                self.node(f"{name}/Shape", "Shape", y)
                self.node(f"{name}/Reshape", "Reshape", y, f"{name}/Shape")

    def kernel(self, name, shape):
        fan = shape[0] * shape[1] * (1 if "depthwise" in name else shape[2])
        return self.const(name, self.random.normal(0, (2 / fan) ** 0.5, shape))

    def biased(self, name, x, shape, stride):
        kernel = self.kernel(f"{name}/weights", shape)
        y = self.conv(f"{name}/Conv2D", "Conv2D", x, kernel, stride)
        bias = self.const(f"{name}/biases", self.random.normal(0, 0.1, shape[3]))
        return self.node(f"{name}/BiasAdd", "BiasAdd", y, bias)

    def block(self, name, op, x, shape, stride):
        depthwise = op != "Conv2D"
        channels = shape[2] if depthwise else shape[3]
        weights = "depthwise_weights" if depthwise else "weights"
        kernel = self.kernel(f"{TRUNK}/{name}/{weights}", shape)
        if self.form != "published":
            kernel = self.node(f"{kernel}/read", "Identity", kernel)
        base = f"{TRUNK}/{TRUNK.rpartition('/')[2]}/{name}"
        y = self.conv(f"{base}/{'depthwise' if depthwise else 'Conv2D'}", op, x, kernel, stride)
        y = getattr(self, f"_{self.form}")(base, y, channels, depthwise)
        return self.node(f"{base}/Relu6", "Relu6", y)

    def parameters(self, channels):
        uniform, normal = self.random.uniform, self.random.normal
        return (
            uniform(0.5, 1.5, channels),
            normal(0, 0.3, channels),
            normal(0, 0.2, channels),
            uniform(0.3, 2, channels),
        )

    def _published(self, base, y, channels, depthwise):
        scale, shift, *_ = self.parameters(channels)
        base = f"{base}/BatchNorm/batchnorm"
        if depthwise:
            y = self.node(f"{base}/mul_1", "Mul", y, self.const(f"{base}/mul", scale))
        return self.node(f"{base}/add_1", "Add", y, self.const(f"{base}/sub", shift))

    def _fused(self, base, y, channels, _depthwise):
        names = ("gamma", "beta", "moving_mean", "moving_variance")
        values = zip(names, self.parameters(channels), strict=True)
        inputs = [self.const(f"{base}/BatchNorm/{name}", value) for name, value in values]
        return self.node(
            f"{base}/BatchNorm/FusedBatchNorm", "FusedBatchNorm", y, *inputs,
            epsilon=real(0.001), is_training=number(5, 0),
        )  # fmt: skip

    def _separate(self, base, y, channels, _depthwise):
        gamma, beta, mean, variance = (
            self.const(f"{base}/BatchNorm/{name}", value)
            for name, value in zip(
                ("gamma", "beta", "moving_mean", "moving_variance"),
                self.parameters(channels),
                strict=True,
            )
        )
        base = f"{base}/BatchNorm/batchnorm"
        epsilon = self.const(f"{base}/add/y", 0.001)
        root = self.node(
            f"{base}/Rsqrt", "Rsqrt", self.node(f"{base}/add", "Add", variance, epsilon)
        )
        scale = self.node(f"{base}/mul", "Mul", root, gamma)
        y = self.node(f"{base}/mul_1", "Mul", y, scale)
        moved = self.node(f"{base}/mul_2", "Mul", mean, scale)
        return self.node(f"{base}/add_1", "Add", y, self.node(f"{base}/sub", "Sub", beta, moved))
