"""What each section of a Darknet ``.cfg`` means; checked before anything is allocated."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from migrate_kit.checkpoints.formats.darknet_layers import Draft, Layer, Part, Plan, Shape, sizes
from migrate_kit.results import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from migrate_kit.checkpoints.formats.darknet_cfg import Section

# The largest public networks have 0.3e9 weights; images are 2,048 wide.
_MOST_WEIGHTS = 1 << 30
_MOST_VALUES = 1 << 30
_MOST_CHANNELS = 1 << 20
_MOST_PIXELS = 1 << 14
_MOST_CLASSES = 1 << 16

_SAME_TYPE = {"conv": "convolutional", "conn": "connected", "max": "maxpool", "avg": "avgpool"}
_SAME_TYPE |= {"soft": "softmax", "silence": "empty"}
# What changes the arithmetic in a way that this network does not have; set, it is refused.
_REFUSED = {
    "convolutional": (
        *("xnor", "binary", "bin_output", "cbn", "antialiasing", "share_index", "coordconv"),
        *("sway", "rotate", "stretch", "stretch_sway"),
    ),
    "maxpool": ("maxpool_depth", "antialiasing", "maxpool_zero_nonmax"),
    "reorg": ("reverse", "flatten", "extra"),
    "softmax": ("spatial", "tree"),
    "yolo": ("embedding_layer",),
}
_NEVER_LOADED = ("dontload", "dontloadscales", "numload")
ACTIVATIONS = (
    *("linear", "leaky", "relu", "relu6", "logistic", "mish", "swish", "hard_mish", "tanh", "elu"),
    *("selu", "gelu", "ramp", "relie", "revleaky", "loggy", "hardtan", "lhtan", "plse", "stair"),
    *("normalize_channels", "normalize_channels_softmax", "normalize_channels_softmax_maxval"),
)


def plan_network(sections: Sequence[Section]) -> Plan:
    r"""Return the network that the sections describe.

    Raises
    ------
    MigrateError
        If a layer is unknown, does not fit what it reads, or is larger than any public network's.

    Examples
    --------
    >>> from migrate_kit.checkpoints.formats.darknet_cfg import parse_cfg
    >>> text = "[net]\nchannels=3\nheight=8\nwidth=8\n[convolutional]\nfilters=4\nsize=3\npad=1"
    >>> plan = plan_network(parse_cfg(text))
    >>> plan.layers[0].shape, plan.floats()
    ((4, 8, 8), 112)
    """
    net, *rest = sections
    if not rest:
        raise net.error("the network has no layer")
    height, width = (net.integer(key, 0, 1, _MOST_PIXELS) for key in ("height", "width"))
    draft, weights = Draft((net.integer("channels", 0, 1, _MOST_CHANNELS), height, width)), 0
    if prod(draft.image) > _MOST_VALUES:
        raise net.error(f"an image of {sizes(draft.image)}")
    for section in rest:
        layer = _layer(section, draft)
        if prod(layer.shape) > _MOST_VALUES or min(layer.shape) < 1:
            raise section.error(f"its output would be {sizes(layer.shape)}")
        weights += sum(part.count for part in layer.parts)
        if weights > _MOST_WEIGHTS:
            raise section.error(f"the network would have more than {_MOST_WEIGHTS:,} weights")
        draft.layers.append(layer)
    return Plan(draft.image, tuple(draft.layers))


def _layer(section: Section, draft: Draft) -> Layer:
    kind = _kind(section)
    if kind not in _READERS:
        raise section.error(
            f"a layer of the type {plain(kind)[:40]!r}",
            fix="only layers of YOLOv2, YOLOv3 and their relatives are converted: "
            + ", ".join(sorted(_READERS)),
        )
    for key in (*_REFUSED.get(kind.removesuffix("3d"), ()), *_NEVER_LOADED):
        if section.text(key, "0") not in ("0", "0.0"):
            raise section.error(
                f"{key} is not converted", key, "train or export the network without it"
            )
    return _READERS[kind](section, draft)


def _kind(section: Section) -> str:
    return _SAME_TYPE.get(section.type, section.type)


def _simple(section: Section, draft: Draft, shape: Shape | None = None, **rest: Any) -> Layer:
    before = draft.before
    source = draft.shape(before)
    return Layer(section, _kind(section), (before,), (source,), shape or source, **rest)


def _activation(section: Section, default: str) -> str:
    name = section.text("activation", default)
    if name not in ACTIVATIONS:
        # Darknet would go on with ReLU here, after a line on the terminal.
        raise section.error(f"no activation {plain(name)[:40]!r}", "activation", "correct its name")
    return name


def _strides(section: Section) -> tuple[int, int]:
    stride = section.integer("stride", 1, 1, _MOST_PIXELS)
    across, down = (section.integer(k, stride, -1, _MOST_PIXELS) for k in ("stride_x", "stride_y"))
    return (down if down > 0 else stride, across if across > 0 else stride)


def _norm(name: str, channels: int) -> tuple[Part, ...]:
    parts = ("weight", "running_mean", "running_var")
    return tuple(Part(f"{name}.{part}", (channels,)) for part in parts)


def _convolutional(section: Section, draft: Draft) -> Layer:
    channels, height, width = draft.shape(draft.before)
    filters = section.integer("filters", 1, 1, _MOST_CHANNELS)
    size = section.integer("size", 1, 1, _MOST_PIXELS)
    groups = section.integer("groups", 1, 1, _MOST_CHANNELS)
    dilation = section.integer("dilation", 1, 1, _MOST_PIXELS) if size > 1 else 1
    padding = section.integer("padding", 0, 0, _MOST_PIXELS)
    if section.integer("pad", 0, 0, _MOST_PIXELS):
        padding = size // 2
    if channels % groups or filters % groups:
        raise draft.error(section, f"{groups} groups do not divide {filters} filters", "groups")
    if dilation > 1 and 2 * padding != size - 1:
        # Darknet computes the output's size as if it were not dilated; only this padding agrees.
        raise section.error(f"dilation={dilation} with a padding of {padding}", "dilation")
    down, across = _strides(section)
    number = 1 + sum(layer.kind == "convolutional" for layer in draft.layers)
    conv, norm = f"conv{number}", f"bn{number}"
    weight = Part(f"{conv}.weight", (filters, channels // groups, size, size))
    normed = bool(section.integer("batch_normalize", 0, 0, 1))
    bias = Part(f"{norm if normed else conv}.bias", (filters,))
    room = (height + 2 * padding - size, width + 2 * padding - size)
    if min(room) < 0:
        raise draft.error(section, f"a kernel of {size} does not fit", "size")
    return _simple(
        section,
        draft,
        (filters, room[0] // down + 1, room[1] // across + 1),
        parts=(bias, *(_norm(norm, filters) if normed else ()), weight),
        settings={
            "number": number,
            "stride": (down, across),
            "padding": padding * dilation,
            "dilation": dilation,
            "groups": groups,
            "norm": normed,
            "flipped": bool(section.integer("flipped", 0, 0, 1)),
            "activation": _activation(section, "logistic"),
        },
    )


def _connected(section: Section, draft: Draft) -> Layer:
    inputs = prod(draft.shape(draft.before))
    outputs = section.integer("output", 1, 1, _MOST_CHANNELS)
    normed = bool(section.integer("batch_normalize", 0, 0, 1))
    bias = Part(f"{'bn' if normed else 'fc'}.bias", (outputs,))
    # Other than a convolution's, its statistics come after the weights.
    norm = _norm("bn", outputs) if normed else ()
    parts = (bias, Part("fc.weight", (outputs, inputs)), *norm)
    settings = {"norm": normed, "activation": _activation(section, "logistic")}
    return _simple(section, draft, (outputs, 1, 1), parts=parts, settings=settings)


def _batchnorm(section: Section, draft: Draft) -> Layer:
    channels = draft.shape(draft.before)[0]
    # AlexeyAB's Darknet writes the bias, the original does not.
    parts = (Part("bn.bias", (channels,), optional=True), *_norm("bn", channels))
    return _simple(section, draft, parts=parts)


def _maxpool(section: Section, draft: Draft) -> Layer:
    channels, height, width = draft.shape(draft.before)
    down, across = _strides(section)
    stride = section.integer("stride", 1, 1, _MOST_PIXELS)
    size = section.integer("size", stride, 1, _MOST_PIXELS)
    padding = section.integer("padding", size - 1, 0, _MOST_PIXELS)
    if min(height, width) + padding < size or padding - padding // 2 >= size:
        raise draft.error(section, f"a window of {size} with a padding of {padding}", "size")
    rows, columns = height + padding - size, width + padding - size
    settings = {"size": size, "stride": (down, across), "padding": padding}
    shape = (channels, rows // down + 1, columns // across + 1)
    return _simple(section, draft, shape, settings=settings)


def _avgpool(section: Section, draft: Draft) -> Layer:
    return _simple(section, draft, (draft.shape(draft.before)[0], 1, 1))


def _reorg(section: Section, draft: Draft) -> Layer:
    channels, height, width = draft.shape(draft.before)
    stride = section.integer("stride", 1, 1, _MOST_PIXELS)
    if height % stride or width % stride or (section.type == "reorg" and channels % stride**2):
        raise draft.error(section, f"stride={stride} does not divide", "stride")
    shape = (channels * stride**2, height // stride, width // stride)
    return _simple(section, draft, shape, settings={"stride": stride})


def _upsample(section: Section, draft: Draft) -> Layer:
    channels, height, width = draft.shape(draft.before)
    stride = section.integer("stride", 2, 1, _MOST_PIXELS)
    settings = {"stride": stride, "scale": section.real("scale", 1.0)}
    return _simple(section, draft, (channels, height * stride, width * stride), settings=settings)


def _route(section: Section, draft: Draft) -> Layer:
    inputs = draft.referred(section, "layers")
    shapes = tuple(draft.shape(index) for index in inputs)
    if len({shape[1:] for shape in shapes}) > 1:
        raise section.error(f"layers of different sizes: {sizes(*shapes)}", "layers")
    groups = section.integer("groups", 1, 1, _MOST_CHANNELS)
    group = section.integer("group_id", 0, 0, groups - 1)
    if any(shape[0] % groups for shape in shapes):
        raise section.error(f"{groups} groups do not divide {sizes(*shapes)}", "groups")
    shape = (sum(shape[0] // groups for shape in shapes), *shapes[0][1:])
    settings = {"groups": groups, "group": group}
    return Layer(section, "route", tuple(inputs), shapes, shape, settings=settings)


def _shortcut(section: Section, draft: Draft) -> Layer:
    before, others = draft.before, draft.referred(section, "from")
    own = draft.shape(before)
    inputs = (before, *others)
    shapes = tuple(draft.shape(index) for index in inputs)
    if not all(_adds_up(own, shape) for shape in shapes):
        raise section.error(f"layers of different sizes: {sizes(*shapes)}", "from")
    for key in ("alpha", "beta"):
        if section.real(key, 1.0) != 1.0:
            raise section.error(f"{key} is not converted", key, "train the network without it")
    kind = section.text("weights_type", "none")
    each = {"none": None, "per_feature": 1, "per_layer": 1, "per_channel": own[0]}
    if kind not in each:
        raise section.error(f"no weights_type {plain(kind)[:40]!r}", "weights_type")
    normalization = section.text("weights_normalization", "none").removeprefix("avg_")
    if normalization not in ("none", "relu", "softmax"):
        raise section.error("no such normalization", "weights_normalization")
    width = each[kind]
    parts = () if width is None else (Part("weights", (len(inputs), width, 1, 1)),)
    activation = _activation(section, "linear")
    settings = {"normalization": normalization, "activation": activation}
    return Layer(section, "shortcut", inputs, shapes, own, parts, settings)


def _adds_up(own: Shape, other: Shape) -> bool:
    """Whether Darknet adds two sizes: equal, or one a multiple of the other in both directions."""
    (_, height, width), (_, rows, columns) = own, other
    down, up = (rows // height, columns // width), (height // rows, width // columns)
    larger = down[0] == down[1] and (rows, columns) == (height * down[0], width * down[0])
    return larger or (up[0] == up[1] and (height, width) == (rows * up[0], columns * up[0]))


def _scaled(section: Section, draft: Draft) -> Layer:
    before = draft.before
    index = draft.referred(section, "from")[0]
    scale, shape = draft.shape(before), draft.shape(index)
    per_pixel = bool(section.integer("scale_wh", 0, 0, 1))
    wanted: tuple[int, ...] = shape
    if section.type == "scale_channels":
        wanted = (1, *shape[1:]) if per_pixel else (shape[0], 1, 1)
    if scale != wanted:
        raise section.error(f"{sizes(scale, shape)} cannot be multiplied", "from")
    settings = {"activation": _activation(section, "linear")}
    inputs, shapes = (before, index), (scale, shape)
    return Layer(section, section.type, inputs, shapes, shape, settings=settings)


def _softmax(section: Section, draft: Draft) -> Layer:
    count = prod(draft.shape(draft.before))
    groups = section.integer("groups", 1, 1, _MOST_CHANNELS)
    temperature = section.real("temperature", 1.0)
    if count % groups or temperature <= 0:
        raise draft.error(section, f"{groups} groups at the temperature {temperature}", "groups")
    return _simple(section, draft, settings={"groups": groups, "temperature": temperature})


def _active(section: Section, draft: Draft) -> Layer:
    return _simple(section, draft, settings={"activation": _activation(section, "linear")})


def _dropout(section: Section, draft: Draft) -> Layer:
    probability = section.real("probability", 0.5)
    if not 0 <= probability <= 1:
        raise section.error(f"probability={probability}", "probability")
    return _simple(section, draft, settings={"probability": probability})


def _head(section: Section, draft: Draft) -> Layer:
    yolo = section.type == "yolo"
    classes = section.integer("classes", 20, 1, _MOST_CLASSES)
    total = section.integer("num", 1, 1, 1000)
    if not yolo and section.integer("coords", 4, 0, 1000) != 4:
        raise section.error("coords is not 4", "coords")
    mask = section.integers("mask") if yolo and "mask" in section.options else list(range(total))
    # Darknet begins with anchors of 0.5 and overwrites as many as the .cfg has.
    anchors = [*section.reals("anchors"), *[0.5] * 2 * total][: 2 * total]
    if not mask or not all(0 <= index < total for index in mask):
        raise section.error(f"an anchor of mask is not below num={total}", "mask")
    wanted = len(mask) * (classes + 5)
    if draft.shape(draft.before)[0] != wanted:
        raise draft.error(
            section, f"{len(mask)} anchors and {classes} classes need {wanted} channels", "classes"
        )
    settings = {
        "classes": classes,
        "anchors": [(anchors[2 * i], anchors[2 * i + 1]) for i in mask],
        "scale_x_y": section.real("scale_x_y", 1.0),
        "new_coords": bool(section.integer("new_coords", 0, 0, 1)),
        "softmax": bool(section.integer("softmax", 0, 0, 1)),
        "tree": bool(section.text("tree")),
    }
    return _simple(section, draft, settings=settings)


_READERS: dict[str, Callable[[Section, Draft], Layer]] = {
    "activation": _active,
    "avgpool": _avgpool,
    "batchnorm": _batchnorm,
    "connected": _connected,
    "convolutional": _convolutional,
    "cost": _simple,
    "dropout": _dropout,
    "empty": _simple,
    "maxpool": _maxpool,
    "region": _head,
    "reorg": _reorg,
    "reorg3d": _reorg,
    "route": _route,
    "sam": _scaled,
    "scale_channels": _scaled,
    "shortcut": _shortcut,
    "softmax": _softmax,
    "upsample": _upsample,
    "yolo": _head,
}
