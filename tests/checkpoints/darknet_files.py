"""Small Darknet networks with every kind of layer, and files of weights for them."""

import struct

import numpy as np

from migrate_kit.checkpoints.formats.darknet_cfg import parse_cfg
from migrate_kit.checkpoints.formats.darknet_sections import ACTIVATIONS, plan_network


def section(kind, **options):
    return f"[{kind}]\n" + "".join(f"{key}={value}\n" for key, value in options.items())


def conv(filters, size=1, **options):
    return section("convolutional", filters=filters, size=size, **options)


def net(channels, height, width):
    return section("net", channels=channels, height=height, width=width)


CHAIN = "".join(
    [
        net(4, 11, 13),
        conv(8, 3, pad=1, groups=2, batch_normalize=1, activation="leaky"),
        conv(8, 3, pad=1, stride_x=2, stride_y=1, activation="relu"),
        conv(6, 3, padding=2, stride=2, activation="swish"),
        conv(6, 3, pad=1, dilation=2, activation="mish"),
        conv(6, 5, pad=1, groups=6),
        "[batchnorm]\n",
        section("dropout", probability=0.3),
        section("maxpool", size=2, stride=1),
        section("maxpool", size=3, stride=2),
        section("connected", output=10, activation="tanh"),
        section("connected", output=10, batch_normalize=1, activation="leaky"),
        section("softmax", groups=2),
    ]
)
BRANCHES = "".join(
    [
        net(3, 8, 12),
        conv(12, 3, pad=1, activation="linear"),
        conv(4, 3, pad=1, activation="linear"),
        section("shortcut", **{"from": -2}, activation="leaky"),  # 4 channels and 12
        section("route", layers="-1,0"),
        section("reorg", stride=2),
        section("route", layers="0"),
        conv(8, activation="linear"),
        section("shortcut", **{"from": 1}),  # 8 channels and 4
        section("reorg3d", stride=2),
        section("upsample", stride=2, scale=0.5),
        section("route", layers="0,2", groups=4, group_id=1),
        conv(8, activation="logistic"),
        section("sam", **{"from": 6}),
        section("avgpool"),
        conv(8, activation="logistic"),
        section("scale_channels", **{"from": -3}, activation="relu"),
        section(
            "shortcut",
            **{"from": "-4,6"},
            weights_type="per_channel",
            weights_normalization="softmax",
        ),
        section(
            "shortcut",
            **{"from": "7,6"},
            weights_type="per_feature",
            weights_normalization="relu",
            activation="swish",
        ),
        section(
            "shortcut",
            **{"from": "1,0"},
            weights_type="per_channel",
            weights_normalization="relu",
            activation="mish",
        ),
        conv(1, activation="logistic"),
        section("scale_channels", **{"from": -2}, scale_wh=1),
    ]
)
# relu6 is not among them: Darknet's CPU code forgot it and gives zeros.
SQUASHED = net(3, 5, 5) + "".join(
    (section("route", layers="0") if i else "") + conv(4, 3, pad=1, activation=name)
    for i, name in enumerate(a for a in ACTIVATIONS if a != "relu6")
)
POOLED = net(3, 14, 15) + conv(4, activation="linear")
POOLED += "".join(
    (section("route", layers="0") if i else "") + section("maxpool", **options)
    for i, options in enumerate(
        [
            {"size": 2, "stride": 1},
            {"size": 5, "stride": 1},
            {"size": 3, "stride": 2, "padding": 1},
            {"size": 3, "stride": 2, "padding": 0},
            {"size": 4, "stride": 3, "padding": 3},
            {"size": 3, "stride_x": 2, "stride_y": 1},
        ]
    )
)
FLIPPED = net(4, 3, 4) + conv(6, 3, groups=2, flipped=1, activation="linear")
NETWORKS = {
    "chain": CHAIN,
    "branches": BRANCHES,
    "squashed": SQUASHED,
    "pooled": POOLED,
    "flipped": FLIPPED,
}


def header(length=20, version=(0, 2, 5), seen=64):
    return struct.pack("<3i", *version) + seen.to_bytes(length - 12, "little")


def floats(text, optional=True):
    """Random values that a network could have, the same on every machine."""
    random = np.random.RandomState(3)
    values = []
    for _, part in plan_network(parse_cfg(text)).parts(optional):
        if part.name.endswith("running_var"):
            value = random.uniform(0.2, 2, part.shape)
        elif part.name.endswith(".weight") and len(part.shape) > 1:
            value = random.normal(0, np.prod(part.shape[1:]) ** -0.5, part.shape)
        else:
            value = random.normal(0.2, 0.5, part.shape)
        values.append(value.astype("<f4").ravel())
    return np.concatenate(values)


def image(text):
    shape = plan_network(parse_cfg(text)).image
    return np.random.RandomState(4).normal(0, 1, (1, *shape)).astype(np.float32)


def write_pair(folder, text, stem="net", values=None, head=None):
    """Write a .cfg and its .weights; return the weights' path."""
    values = floats(text) if values is None else values
    (folder / f"{stem}.cfg").write_text(text)
    path = folder / f"{stem}.weights"
    path.write_bytes((header() if head is None else head) + values.tobytes())
    return path


def some(values, count=6):
    """A few values of a layer's output, from its whole length."""
    flat = np.asarray(values).ravel()
    return [float(flat[k * flat.size // count]) for k in range(count)]
