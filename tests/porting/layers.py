"""Pairs of a torch layer and its cell, as the rows of the measured rules have them."""

import copy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torchvision.ops import FrozenBatchNorm2d

from migrate_kit.layers.runners import mindspore_import
from migrate_kit.porting.rules import forward, moves

ms = mindspore_import.load()
# An operator without a kernel then says so at its own call, not at a later one's.
ms.runtime.launch_blocking()
T = torch.nn
M, ops, mint = ms.nn, ms.ops, ms.mint


@dataclass(frozen=True)
class Case:
    """One pair: how to build both, and what to feed them."""

    name: str
    torch_layer: Any
    cell: Any
    inputs: tuple = ((2, 8, 9, 9),)
    status: str = "ok"
    train: bool = False
    options: dict = field(default_factory=dict)

    def __str__(self):
        return self.name


CASES = []


def case(name, torch_layer, cell, *inputs, **more):
    CASES.append(Case(name, torch_layer, cell, inputs or Case.inputs, **more))


def ints(high, *shape):
    return np.random.RandomState(3).randint(0, high, shape).astype(np.int32)


def first(outputs):
    """Return the tensors of an output, nested or not, as one list."""
    if isinstance(outputs, tuple | list):
        return [t for o in outputs for t in first(o)]
    return [outputs] if outputs is not None else []


def arrays(shapes):
    rng = np.random.RandomState(7)
    return [
        s if isinstance(s, np.ndarray) else rng.standard_normal(s).astype(np.float32)
        for s in shapes
    ]


def randomize(module):
    """Give every parameter and statistic a value of its own; a variance stays positive."""
    torch.manual_seed(5)
    with torch.no_grad():
        for name, value in module.state_dict().items():
            if value.is_floating_point():
                value.copy_(torch.randn_like(value) * 0.4)
                if name.endswith(("running_var", "norm.weight")):
                    value.copy_(torch.rand_like(value) + 0.3)
    return module


def load(module, cell):
    """Copy the weights by the rules."""
    if not hasattr(cell, "parameters_and_names"):
        return
    places = dict(cell.parameters_and_names())
    state = module.state_dict()
    for move in moves(module, cell):
        assert move.transform not in ("no counterpart", "unfilled"), move
        place = places.get(move.cell_name)
        if move.moved:
            place.set_data(ms.Tensor(forward(move.transform, state[move.torch_name]).numpy()))
        elif move.transform in ("ones", "zeros"):
            place.set_data(getattr(ops, move.transform)(place.shape, place.dtype))


def called(layer, given, options, tensor):
    """Call a layer: a cell's state is a pair, an attention's mask an argument."""
    if options.get("state"):
        return layer(given[0], (given[1], given[2]))
    if options.get("mask"):
        blocked = np.triu(np.ones((len(given[0]), len(given[1])), dtype=bool), 1)
        return layer(*given, attn_mask=tensor(blocked))
    return layer(*given)


def statistics(layer):
    """Return what a batch normalization has learnt of its batches, after the outputs."""
    layer = getattr(layer, "bn2d", layer)
    for names in (("running_mean", "running_var"), ("moving_mean", "moving_variance")):
        if all(getattr(layer, name, None) is not None for name in names):
            return [getattr(layer, name) for name in names]
    return []


def run_torch(module, inputs, options, double):
    module = copy.deepcopy(module)
    module = module.double() if double else module.float()
    given = [torch.as_tensor(x) for x in inputs]
    given = [x.long() if x.dtype == torch.int32 else x for x in given]
    given = [x.double() if double and x.is_floating_point() else x for x in given]
    with torch.no_grad():
        outputs = first(called(module, given, options, torch.as_tensor))
    return [y.numpy() for y in outputs + (statistics(module) if module.training else [])]


def run_cell(cell, inputs, options):
    outputs = first(called(cell, [ms.Tensor(x) for x in inputs], options, ms.Tensor))
    return [y.asnumpy() for y in outputs + (statistics(cell) if _trains(cell) else [])]


def _trains(cell):
    return getattr(cell, "training", False)


def ratio(found, exact, host):
    """Return R: the cell's relative error against float64, in units of torch's own."""
    if found.shape != exact.shape:
        return np.inf
    if found.dtype.kind in "bi":
        return 0.0 if np.array_equal(found, exact) else np.inf
    if not np.isfinite(found).all():
        return np.inf
    own, error = np.linalg.norm(host - exact), np.linalg.norm(found - exact)
    # One rounding of the output is the least measure: of a few numbers torch may hit every one.
    floor = np.linalg.norm(exact) * (2.0**-24 / np.sqrt(3) if exact.size > 8 else 2.0**-23)
    return float(error / max(own, floor)) if error else 0.0


def measured(module, cell, inputs, options=None):
    """Return R, the largest over all outputs."""
    options = options or {}
    exact, host = references(module, inputs, options)
    return worst(run_cell(cell, inputs, options), exact, host)


def references(module, inputs, options):
    return tuple(run_torch(module, inputs, options, double) for double in (True, False))


def worst(found, exact, host):
    if len(found) != len(exact):
        return np.inf
    return max(ratio(f, e, h) for f, e, h in zip(found, exact, host, strict=True))


class RmsCell(M.Cell):
    def __init__(self, n):
        super().__init__()
        self.weight = ms.Parameter(ops.ones((n,), ms.float32), name="weight")

    def construct(self, x):
        eps = float(np.finfo(np.float32).eps)
        return x * ops.rsqrt((x * x).mean(-1, keep_dims=True) + eps) * self.weight


class Reflected(M.Cell):
    def __init__(self):
        super().__init__()
        self.pad = M.ReflectionPad2d(1)
        self.conv = M.Conv2d(8, 6, 3, pad_mode="valid", has_bias=True)

    def construct(self, x):
        return self.conv(self.pad(x))

    def parameters_and_names(self, *_args, **_more):
        return self.conv.parameters_and_names()


class Bag(M.Cell):
    def __init__(self):
        super().__init__()
        self.embedding = M.Embedding(20, 8)

    def construct(self, x):
        return self.embedding(x).mean(1)

    def parameters_and_names(self, *_args, **_more):
        return self.embedding.parameters_and_names()


PAD = {"pad_mode": "pad", "has_bias": True}
case("Linear", lambda: T.Linear(8, 5), lambda: M.Dense(8, 5), (4, 8))
case(
    "Linear(bias=False)",
    lambda: T.Linear(8, 5, False),
    lambda: M.Dense(8, 5, has_bias=False),
    (4, 8),
)
case("Bilinear", lambda: T.Bilinear(4, 5, 3), lambda: M.BiDense(4, 5, 3), (6, 4), (6, 5))
case(
    "Conv1d",
    lambda: T.Conv1d(8, 6, 3, padding=1),
    lambda: M.Conv1d(8, 6, 3, padding=1, **PAD),
    (2, 8, 12),
)
case("Conv2d", lambda: T.Conv2d(8, 6, 3, padding=1), lambda: M.Conv2d(8, 6, 3, padding=1, **PAD))
case(
    "Conv2d(even input, stride 2)",
    lambda: T.Conv2d(8, 6, 3, 2, 1),
    lambda: M.Conv2d(8, 6, 3, 2, padding=1, **PAD),
    (2, 8, 10, 10),
)
case(
    "Conv2d(depthwise, dilation)",
    lambda: T.Conv2d(8, 8, 3, padding=2, dilation=2, groups=8),
    lambda: M.Conv2d(8, 8, 3, padding=2, dilation=2, group=8, **PAD),
)
case(
    "Conv2d(padding='same')",
    lambda: T.Conv2d(8, 6, 4, padding="same"),
    lambda: M.Conv2d(8, 6, 4, pad_mode="same", has_bias=True),
)
case(
    "Conv2d(padding_mode='reflect')",
    lambda: T.Conv2d(8, 6, 3, padding=1, padding_mode="reflect"),
    Reflected,
)
case(
    "Conv3d",
    lambda: T.Conv3d(4, 6, 3, padding=1),
    lambda: M.Conv3d(4, 6, 3, padding=1, **PAD),
    (2, 4, 6, 6, 6),
)
case(
    "ConvTranspose1d",
    lambda: T.ConvTranspose1d(6, 8, 4, 2, 1),
    lambda: M.Conv1dTranspose(6, 8, 4, 2, padding=1, **PAD),
    (2, 6, 12),
)
case(
    "ConvTranspose2d(output_padding=1) as the cell has it",
    lambda: T.ConvTranspose2d(6, 8, 3, 2, 1, 1),
    lambda: M.Conv2dTranspose(6, 8, 3, 2, padding=1, output_padding=1, **PAD),
    (2, 6, 9, 9),
    status="differs",
)
case(
    "ConvTranspose2d(no output_padding)",
    lambda: T.ConvTranspose2d(6, 8, 3, 2, 1),
    lambda: M.Conv2dTranspose(6, 8, 3, 2, padding=1, **PAD),
    (2, 6, 9, 9),
)
case(
    "ConvTranspose2d(output_padding=1)",
    lambda: T.ConvTranspose2d(6, 8, 3, 2, 1, 1),
    lambda: M.Conv2dTranspose(6, 8, 3, 2, padding=(1, 0, 1, 0), **PAD),
    (2, 6, 9, 9),
)
case(
    "ConvTranspose2d(groups)",
    lambda: T.ConvTranspose2d(6, 8, 3, 2, 1, groups=2),
    lambda: M.Conv2dTranspose(6, 8, 3, 2, padding=1, group=2, **PAD),
    (2, 6, 9, 9),
)
case(
    "ConvTranspose3d",
    lambda: T.ConvTranspose3d(4, 6, 3, 2, 1),
    lambda: M.Conv3dTranspose(4, 6, 3, 2, padding=1, **PAD),
    (2, 4, 5, 5, 5),
)
case("BatchNorm1d", lambda: T.BatchNorm1d(8), lambda: M.BatchNorm1d(8), (6, 8))
case("BatchNorm1d(3-D)", lambda: T.BatchNorm1d(8), lambda: M.BatchNorm1d(8), (6, 8, 5))
case("BatchNorm2d", lambda: T.BatchNorm2d(8), lambda: M.BatchNorm2d(8))
case("BatchNorm2d(train)", lambda: T.BatchNorm2d(8), lambda: M.BatchNorm2d(8), train=True)
case(
    "BatchNorm2d(affine=False)",
    lambda: T.BatchNorm2d(8, affine=False),
    lambda: M.BatchNorm2d(8, affine=False),
)
case(
    "BatchNorm2d(track_running_stats=False)",
    lambda: T.BatchNorm2d(8, track_running_stats=False),
    lambda: M.BatchNorm2d(8, use_batch_statistics=True),
)
case(
    "FrozenBatchNorm2d",
    lambda: FrozenBatchNorm2d(8),
    lambda: M.BatchNorm2d(8, use_batch_statistics=False),
)
case("BatchNorm3d", lambda: T.BatchNorm3d(4), lambda: M.BatchNorm3d(4), (2, 4, 5, 5, 5))
case("SyncBatchNorm", lambda: T.SyncBatchNorm(8), lambda: M.BatchNorm2d(8))
case("LayerNorm", lambda: T.LayerNorm(8), lambda: M.LayerNorm((8,), epsilon=1e-5), (4, 6, 8))
case(
    "LayerNorm(small)",
    lambda: T.LayerNorm(8),
    lambda: M.LayerNorm((8,), epsilon=1e-5),
    1e-3 * arrays([(4, 6, 8)])[0],
)
case(
    "LayerNorm([C,H,W])",
    lambda: T.LayerNorm((8, 9, 9)),
    lambda: M.LayerNorm((8, 9, 9), begin_norm_axis=1, begin_params_axis=1, epsilon=1e-5),
)
case(
    "LayerNorm(no affine)",
    lambda: T.LayerNorm(8, elementwise_affine=False),
    lambda: M.LayerNorm((8,), epsilon=1e-5),
    (4, 8),
)
case("GroupNorm", lambda: T.GroupNorm(4, 8), lambda: M.GroupNorm(4, 8))
case("GroupNorm(3-D)", lambda: T.GroupNorm(4, 8), lambda: M.GroupNorm(4, 8), (2, 8, 7))
case("mint GroupNorm(3-D)", lambda: T.GroupNorm(4, 8), lambda: mint.nn.GroupNorm(4, 8), (2, 8, 7))
for n in (1, 2, 3):
    shape = (2, 8, 5, 5, 5)[: n + 2]
    case(
        f"InstanceNorm{n}d",
        lambda n=n: getattr(T, f"InstanceNorm{n}d")(8, affine=True),
        lambda n=n: getattr(M, f"InstanceNorm{n}d")(8),
        shape,
        status="error",
    )
    case(
        f"InstanceNorm{n}d as GroupNorm",
        lambda n=n: getattr(T, f"InstanceNorm{n}d")(8, affine=True),
        lambda: M.GroupNorm(8, 8),
        shape,
    )
case(
    "RMSNorm by ops.rms_norm",
    lambda: T.RMSNorm(8),
    lambda: lambda x: ops.rms_norm(x, ops.ones((8,), ms.float32)),
    (4, 8),
    status="error",
)
case("RMSNorm", lambda: T.RMSNorm(8), lambda: RmsCell(8), (4, 8))
case("Embedding", lambda: T.Embedding(20, 8), lambda: M.Embedding(20, 8), ints(20, 3, 5))
case(
    "Embedding(padding_idx)",
    lambda: T.Embedding(20, 8, padding_idx=0),
    lambda: M.Embedding(20, 8, padding_idx=0),
    ints(20, 3, 5),
)
case("EmbeddingBag(mean)", lambda: T.EmbeddingBag(20, 8), Bag, ints(20, 3, 5))
for kind in ("LSTM", "GRU", "RNN"):
    for more in (
        {},
        {"num_layers": 2, "bidirectional": True, "batch_first": True},
        {"bias": False},
    ):
        cells = {("has_bias" if k == "bias" else k): v for k, v in more.items()}
        case(
            f"{kind}({more})",
            lambda kind=kind, more=more: getattr(T, kind)(5, 4, **more),
            lambda kind=kind, cells=cells: getattr(M, kind)(5, 4, **cells),
            (3, 6, 5),
        )
case(
    "RNN(relu)",
    lambda: T.RNN(5, 4, nonlinearity="relu"),
    lambda: M.RNN(5, 4, nonlinearity="relu"),
    (3, 6, 5),
)
for kind in ("GRU", "RNN"):
    case(
        f"{kind}Cell",
        lambda kind=kind: getattr(T, f"{kind}Cell")(5, 4),
        lambda kind=kind: getattr(M, f"{kind}Cell")(5, 4),
        (3, 5),
        (3, 4),
    )
case(
    "LSTMCell",
    lambda: T.LSTMCell(5, 4),
    lambda: M.LSTMCell(5, 4),
    (3, 5),
    (3, 4),
    (3, 4),
    options={"state": True},
)
case(
    "MultiheadAttention",
    lambda: T.MultiheadAttention(8, 2),
    lambda: M.MultiheadAttention(8, 2),
    (5, 3, 8),
    (6, 3, 8),
    (6, 3, 8),
)
case(
    "MultiheadAttention(kdim,vdim)",
    lambda: T.MultiheadAttention(8, 2, kdim=6, vdim=5),
    lambda: M.MultiheadAttention(8, 2, kdim=6, vdim=5),
    (5, 3, 8),
    (6, 3, 6),
    (6, 3, 5),
)
case(
    "MultiheadAttention(add_bias_kv)",
    lambda: T.MultiheadAttention(8, 2, add_bias_kv=True),
    lambda: M.MultiheadAttention(8, 2, add_bias_kv=True),
    (5, 3, 8),
    (6, 3, 8),
    (6, 3, 8),
)
case(
    "MultiheadAttention(attn_mask bool)",
    lambda: T.MultiheadAttention(8, 2),
    lambda: M.MultiheadAttention(8, 2),
    (5, 3, 8),
    (5, 3, 8),
    (5, 3, 8),
    options={"mask": True},
)
case(
    "TransformerEncoderLayer",
    lambda: T.TransformerEncoderLayer(8, 2, 16),
    lambda: M.TransformerEncoderLayer(8, 2, 16),
    (5, 3, 8),
)
case(
    "TransformerDecoderLayer",
    lambda: T.TransformerDecoderLayer(8, 2, 16),
    lambda: M.TransformerDecoderLayer(8, 2, 16),
    (5, 3, 8),
    (6, 3, 8),
)
case(
    "TransformerEncoder(2 layers)",
    lambda: T.TransformerEncoder(
        T.TransformerEncoderLayer(8, 2, 16), 2, enable_nested_tensor=False
    ),
    lambda: M.TransformerEncoder(M.TransformerEncoderLayer(8, 2, 16), 2),
    (5, 3, 8),
)
case("PReLU", lambda: T.PReLU(8), lambda: M.PReLU(8))
ONE = ((4, 8),)
SAME_NAME = {
    "ReLU": {},
    "ReLU6": {},
    "SiLU": {},
    "ELU": {},
    "Mish": {},
    "CELU": {},
    "Tanh": {},
    "Sigmoid": {},
    "Softsign": {},
    "Hardtanh": {},
    "Tanhshrink": {},
    "LogSigmoid": {},
    "Threshold": {"threshold": 0.1, "value": 0.3},
}
for kind, more in SAME_NAME.items():
    case(
        kind,
        lambda kind=kind, more=more: getattr(T, kind)(**more),
        lambda kind=kind, more=more: getattr(M, kind)(**more),
        (4, 64),
    )
for kind, other in {
    "Hardswish": "HSwish",
    "Hardsigmoid": "HSigmoid",
    "SELU": "SeLU",
    "Hardshrink": "HShrink",
    "Softshrink": "SoftShrink",
}.items():
    case(
        kind, lambda kind=kind: getattr(T, kind)(), lambda other=other: getattr(M, other)(), (4, 64)
    )
case("GELU", T.GELU, lambda: M.GELU(approximate=False), (4, 64))
case("GELU(tanh)", lambda: T.GELU("tanh"), M.GELU, (4, 64))
case("LeakyReLU", T.LeakyReLU, lambda: M.LeakyReLU(alpha=0.01), (4, 64))
case("Softmax", lambda: T.Softmax(1), lambda: M.Softmax(1))
case("LogSoftmax", lambda: T.LogSoftmax(1), lambda: M.LogSoftmax(1), (4, 64))
case("GLU", lambda: T.GLU(1), lambda: M.GLU(1))
case("Softplus", T.Softplus, lambda: ops.softplus, (4, 64))
for n in (1, 2, 3):
    shape = (2, 8, 9, 9, 9)[: n + 2]
    for kind in ("MaxPool", "AvgPool"):
        case(
            f"{kind}{n}d",
            lambda n=n, kind=kind: getattr(T, f"{kind}{n}d")(3, 2, 1),
            lambda n=n, kind=kind: getattr(M, f"{kind}{n}d")(3, 2, pad_mode="pad", padding=1),
            shape,
        )
case("MaxPool2d(no stride)", lambda: T.MaxPool2d(2), lambda: M.MaxPool2d(2, 2))
case(
    "MaxPool2d(3,2,1) negative input",
    lambda: T.MaxPool2d(3, 2, 1),
    lambda: M.MaxPool2d(3, 2, pad_mode="pad", padding=1),
    -1 - abs(arrays([(2, 8, 9, 9)])[0]),
)
case(
    "MaxPool2d(ceil_mode)",
    lambda: T.MaxPool2d(3, 2, ceil_mode=True),
    lambda: M.MaxPool2d(3, 2, pad_mode="pad", ceil_mode=True),
    (2, 8, 10, 10),
)
case(
    "MaxPool2d(return_indices)",
    lambda: T.MaxPool2d(3, 2, 1, return_indices=True),
    lambda: M.MaxPool2d(3, 2, pad_mode="pad", padding=1, return_indices=True),
)
case(
    "AvgPool2d(count_include_pad=False)",
    lambda: T.AvgPool2d(3, 2, 1, count_include_pad=False),
    lambda: M.AvgPool2d(3, 2, pad_mode="pad", padding=1, count_include_pad=False),
)
case(
    "AvgPool2d(ceil_mode)",
    lambda: T.AvgPool2d(3, 2, 1, ceil_mode=True),
    lambda: M.AvgPool2d(3, 2, pad_mode="pad", padding=1, ceil_mode=True),
    (2, 8, 10, 10),
)
case(
    "AvgPool2d(ceil_mode) by ops",
    lambda: T.AvgPool2d(3, 2, 1, ceil_mode=True),
    lambda: lambda x: ops.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
    (2, 8, 10, 10),
)
case("AdaptiveAvgPool1d", lambda: T.AdaptiveAvgPool1d(3), lambda: M.AdaptiveAvgPool1d(3), (2, 8, 9))
case("AdaptiveAvgPool2d(1)", lambda: T.AdaptiveAvgPool2d(1), lambda: M.AdaptiveAvgPool2d(1))
case("AdaptiveAvgPool2d(7)", lambda: T.AdaptiveAvgPool2d(7), lambda: M.AdaptiveAvgPool2d(7))
case("AdaptiveMaxPool2d", lambda: T.AdaptiveMaxPool2d(3), lambda: M.AdaptiveMaxPool2d(3))
case(
    "LPPool2d",
    lambda: T.LPPool2d(2, 3, 2),
    lambda: M.LPPool2d(2, 3, 2),
    abs(arrays([(2, 8, 9, 9)])[0]),
)
for mode, corners, status in (
    ("nearest", None, "ok"),
    ("bilinear", False, "ok"),
    ("bilinear", True, "ok"),
    ("bicubic", False, "differs"),
    ("bicubic", True, "differs"),
):
    case(
        f"Upsample({mode},align_corners={corners})",
        lambda m=mode, c=corners: T.Upsample((17, 18), mode=m, align_corners=c),
        lambda m=mode, c=corners: M.Upsample((17, 18), mode=m, align_corners=c),
        status=status,
    )
case(
    "Upsample(scale_factor=2,nearest) without recompute",
    lambda: T.Upsample(scale_factor=2),
    lambda: M.Upsample(scale_factor=2.0),
    status="error",
)
for mode in ("nearest", "bilinear"):
    case(
        f"Upsample(scale_factor=2,{mode})",
        lambda m=mode: T.Upsample(scale_factor=2, mode=m),
        lambda m=mode: M.Upsample(scale_factor=2.0, mode=m, recompute_scale_factor=True),
    )
case("PixelShuffle", lambda: T.PixelShuffle(2), lambda: M.PixelShuffle(2))
case("ChannelShuffle", lambda: T.ChannelShuffle(2), lambda: M.ChannelShuffle(2))
case("ZeroPad2d", lambda: T.ZeroPad2d((1, 2, 3, 4)), lambda: M.ZeroPad2d((1, 2, 3, 4)))
case(
    "ConstantPad2d",
    lambda: T.ConstantPad2d((1, 2, 3, 4), 1.5),
    lambda: M.ConstantPad2d((1, 2, 3, 4), 1.5),
)
case(
    "ReflectionPad2d",
    lambda: T.ReflectionPad2d((1, 2, 3, 4)),
    lambda: M.ReflectionPad2d((1, 2, 3, 4)),
)
case(
    "ReplicationPad2d",
    lambda: T.ReplicationPad2d((1, 2, 3, 4)),
    lambda: M.ReplicationPad2d((1, 2, 3, 4)),
)
case("Flatten", T.Flatten, M.Flatten)
case("Unfold", lambda: T.Unfold(3), lambda: lambda x: ops.unfold(x, 3))
case(
    "Fold",
    lambda: T.Fold((4, 4), 3),
    lambda: lambda x: ops.fold(x, ms.Tensor([4, 4], ms.int32), 3, 1, 0, 1),
    (2, 18, 4),
)
case("Dropout", lambda: T.Dropout(0.3), lambda: M.Dropout(p=0.3))
case("Dropout2d", lambda: T.Dropout2d(0.3), lambda: M.Dropout2d(p=0.3))
case("CosineSimilarity", T.CosineSimilarity, lambda: ops.cosine_similarity, (4, 8), (4, 8))
TWO = ((6, 5), (6, 5))
SURE = tuple(1 / (1 + np.exp(-a)) for a in arrays(TWO))
LOGS = (np.log(SURE[0]), SURE[1])
case("CrossEntropyLoss", T.CrossEntropyLoss, M.CrossEntropyLoss, (6, 5), ints(5, 6))
case(
    "CrossEntropyLoss(int64 labels)",
    T.CrossEntropyLoss,
    M.CrossEntropyLoss,
    (6, 5),
    ints(5, 6).astype(np.int64),
    status="error",
)
WEIGHT = np.float32([0.2, 1.5, 1, 0.7, 2])
case(
    "CrossEntropyLoss(label_smoothing,weight)",
    lambda: T.CrossEntropyLoss(torch.tensor(WEIGHT), label_smoothing=0.1),
    lambda: M.CrossEntropyLoss(ms.Tensor(WEIGHT), label_smoothing=0.1),
    (6, 5),
    ints(5, 6),
    options={"keep": True},
)
case(
    "CrossEntropyLoss(2-D map)",
    T.CrossEntropyLoss,
    M.CrossEntropyLoss,
    (2, 5, 4, 4),
    ints(5, 2, 4, 4),
)
case(
    "CrossEntropyLoss as SoftmaxCrossEntropyWithLogits",
    T.CrossEntropyLoss,
    lambda: M.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"),
    (6, 5),
    ints(5, 6),
)
case("NLLLoss", T.NLLLoss, M.NLLLoss, LOGS[0], ints(5, 6))
case("BCELoss", T.BCELoss, M.BCELoss, *SURE)
case("BCEWithLogitsLoss", T.BCEWithLogitsLoss, M.BCEWithLogitsLoss, (6, 5), SURE[1])
for kind in ("MSELoss", "L1Loss", "HuberLoss"):
    case(kind, getattr(T, kind), getattr(M, kind), *TWO)
case("SmoothL1Loss", T.SmoothL1Loss, lambda: M.SmoothL1Loss(reduction="mean"), *TWO)
case(
    "KLDivLoss",
    lambda: T.KLDivLoss(reduction="batchmean"),
    lambda: M.KLDivLoss(reduction="batchmean"),
    *LOGS,
)
case("CosineEmbeddingLoss", T.CosineEmbeddingLoss, M.CosineEmbeddingLoss, *TWO, 2 * ints(2, 6) - 1)
case(
    "TripletMarginLoss",
    T.TripletMarginLoss,
    M.TripletMarginLoss,
    (4, 5),
    (4, 5),
    (4, 5),
    status="error",
)
case(
    "CTCLoss",
    T.CTCLoss,
    M.CTCLoss,
    np.log(np.float32(np.full((9, 2, 5), 0.2))),
    1 + ints(4, 2, 3),
    np.int32([9, 9]),
    np.int32([3, 2]),
)
for kind, make, shape, status in (
    ("Linear", lambda n: n.Linear(8, 5), (4, 8), "ok"),
    ("Conv1d", lambda n: n.Conv1d(8, 6, 3, padding=1), (2, 8, 9), "error"),
    ("Conv2d", lambda n: n.Conv2d(8, 6, 3, padding=1), (2, 8, 9, 9), "error"),
    ("Conv3d", lambda n: n.Conv3d(8, 6, 3, padding=1), (2, 8, 5, 5, 5), "error"),
    ("ConvTranspose2d", lambda n: n.ConvTranspose2d(8, 6, 3, 2), (2, 8, 5, 5), "error"),
    ("BatchNorm1d", lambda n: n.BatchNorm1d(8), (4, 8), "error"),
    ("BatchNorm2d", lambda n: n.BatchNorm2d(8), (2, 8, 9, 9), "error"),
    ("BatchNorm3d", lambda n: n.BatchNorm3d(8), (2, 8, 5, 5, 5), "error"),
    ("LayerNorm", lambda n: n.LayerNorm(8), (4, 8), "error"),
    ("GroupNorm", lambda n: n.GroupNorm(4, 8), (2, 8, 9, 9), "ok"),
    ("Embedding", lambda n: n.Embedding(20, 8), ints(20, 3, 5), "error"),
    ("PReLU", lambda n: n.PReLU(), (4, 8), "ok"),
    ("ReLU", lambda n: n.ReLU(), (4, 8), "ok"),
    ("ReLU6", lambda n: n.ReLU6(), (4, 8), "error"),
    ("GELU", lambda n: n.GELU(), (4, 8), "error"),
    ("SiLU", lambda n: n.SiLU(), (4, 8), "ok"),
    ("Hardswish", lambda n: n.Hardswish(), (4, 8), "ok"),
    ("Hardsigmoid", lambda n: n.Hardsigmoid(), (4, 8), "ok"),
    ("Hardtanh", lambda n: n.Hardtanh(), (4, 8), "error"),
    ("ELU", lambda n: n.ELU(), (4, 8), "error"),
    ("Mish", lambda n: n.Mish(), (4, 8), "error"),
    ("SELU", lambda n: n.SELU(), (4, 8), "error"),
    ("Softmax", lambda n: n.Softmax(1), (4, 8), "ok"),
    ("LogSoftmax", lambda n: n.LogSoftmax(1), (4, 8), "error"),
    ("Tanh", lambda n: n.Tanh(), (4, 64), "ok"),
    ("Sigmoid", lambda n: n.Sigmoid(), (4, 64), "ok"),
    ("AvgPool2d", lambda n: n.AvgPool2d(3, 2, 1), (2, 8, 9, 9), "error"),
    ("MaxPool2d", lambda n: n.MaxPool2d(3, 2, 1), (2, 8, 9, 9), "error"),
    ("AdaptiveAvgPool2d(1)", lambda n: n.AdaptiveAvgPool2d(1), (2, 8, 9, 9), "error"),
    ("AdaptiveAvgPool2d(7)", lambda n: n.AdaptiveAvgPool2d(7), (2, 8, 9, 9), "error"),
    ("Dropout", lambda n: n.Dropout(0.3), (4, 8), "ok"),
    ("Flatten", lambda n: n.Flatten(), (4, 8, 2), "ok"),
    ("Identity", lambda n: n.Identity(), (4, 8), "ok"),
    ("PixelShuffle", lambda n: n.PixelShuffle(2), (2, 8, 9, 9), "ok"),
    ("ZeroPad2d", lambda n: n.ZeroPad2d(1), (2, 8, 9, 9), "error"),
    ("ReflectionPad2d", lambda n: n.ReflectionPad2d(1), (2, 8, 9, 9), "error"),
    ("Unfold", lambda n: n.Unfold(3), (2, 8, 9, 9), "error"),
    ("GLU", lambda n: n.GLU(1), (2, 8, 9, 9), "ok"),
    ("LogSigmoid", lambda n: n.LogSigmoid(), (4, 8), "error"),
    ("Hardshrink", lambda n: n.Hardshrink(), (4, 8), "ok"),
    ("Softshrink", lambda n: n.Softshrink(), (4, 8), "ok"),
    ("Upsample", lambda n: n.Upsample(size=(9, 8), mode="bilinear"), (2, 8, 9, 9), "error"),
):  # fmt: skip
    case(
        f"mint.nn.{kind}",
        lambda make=make: make(T),
        lambda make=make: make(mint.nn),
        shape,
        status=status,
    )
for kind, given, status in (
    ("CrossEntropyLoss", ((6, 5), ints(5, 6).astype(np.int64)), "error"),
    ("NLLLoss", (LOGS[0], ints(5, 6).astype(np.int64)), "ok"),
    ("MSELoss", TWO, "error"),
    ("L1Loss", TWO, "error"),
    ("SmoothL1Loss", TWO, "ok"),
    ("BCELoss", SURE, "ok"),
    ("BCEWithLogitsLoss", ((6, 5), SURE[1]), "ok"),
    ("KLDivLoss", LOGS, "error"),
):
    case(f"mint.nn.{kind}", getattr(T, kind), getattr(mint.nn, kind), *given, status=status)
