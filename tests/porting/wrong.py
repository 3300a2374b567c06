"""For each setting in the table a cell that has it wrong, and the torch layer it stands for."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from torchvision.ops import FrozenBatchNorm2d

from tests.porting.layers import LOGS, SURE, TWO, M, T, arrays, ints

TORCH, CELLS = vars(T), vars(M)


@dataclass(frozen=True)
class Wrong:
    """A pair whose setting ``what`` differs; ``runs`` says whether outputs can be compared."""

    pair: tuple
    what: str
    torch_layer: Any
    cell: Any
    inputs: tuple
    train: bool = False
    obstacle: bool = False
    runs: bool = True

    def __str__(self):
        return f"{self.pair[0]}-{self.pair[1]}-{self.what}"


WRONG = []


def wrong(pair, what, torch_layer, cell, *inputs, **more):
    names = tuple(pair.split(" > ")) if " > " in pair else (pair, pair)
    WRONG.append(Wrong((names[0], f"nn.{names[1]}"), what, torch_layer, cell, inputs, **more))


IMAGE = (2, 8, 9, 9)
wrong(
    "Linear > Dense",
    "has_bias",
    lambda: T.Linear(8, 5),
    lambda: M.Dense(8, 5, has_bias=False),
    (4, 8),
)
wrong(
    "Linear > Dense",
    "activation",
    lambda: T.Linear(8, 5),
    lambda: M.Dense(8, 5, activation="relu"),
    (4, 8),
    obstacle=True,
)
for n in (1, 2, 3):
    shape = (2, 4, 8, 8, 8)[: n + 2]
    for kind, name, other in (
        ("Conv", f"Conv{n}d", f"Conv{n}d"),
        ("Transposed", f"ConvTranspose{n}d", f"Conv{n}dTranspose"),
    ):
        pair, torch_kind, cell_kind = f"{name} > {other}", TORCH[name], CELLS[other]
        more = {"pad_mode": "valid"} if kind == "Conv" else {"pad_mode": "pad"}
        wrong(
            pair,
            "has_bias",
            lambda k=torch_kind: k(4, 6, 3),
            lambda k=cell_kind, m=more: k(4, 6, 3, **m),
            shape,
        )
        if kind == "Conv":
            both = {**more, "has_bias": True}
            wrong(
                pair,
                "padding",
                lambda k=torch_kind: k(4, 6, 3, 2, 1),
                lambda k=cell_kind: k(4, 6, 3, 2, has_bias=True),
                shape,
            )
            wrong(
                pair,
                "stride",
                lambda k=torch_kind: k(4, 6, 3, 2),
                lambda k=cell_kind, b=both: k(4, 6, 3, **b),
                shape,
            )
            wrong(
                pair,
                "dilation",
                lambda k=torch_kind: k(4, 6, 3, dilation=2),
                lambda k=cell_kind, b=both: k(4, 6, 3, **b),
                shape,
            )
            wrong(
                pair,
                "group",
                lambda k=torch_kind: k(4, 6, 3, groups=2),
                lambda k=cell_kind, b=both: k(4, 6, 3, **b),
                shape,
                obstacle=True,
                runs=False,
            )
            wrong(
                pair,
                "padding_mode",
                lambda k=torch_kind: k(4, 6, 3, padding=1, padding_mode="reflect"),
                lambda k=cell_kind: k(4, 6, 3, pad_mode="pad", padding=1, has_bias=True),
                shape,
                obstacle=True,
            )
        else:
            wrong(
                pair,
                "padding",
                lambda k=torch_kind: k(4, 6, 3, 2, 1, output_padding=1),
                lambda k=cell_kind: k(4, 6, 3, 2, has_bias=True),
                shape,
            )
    name = f"BatchNorm{n}d"
    torch_kind, cell_kind = TORCH[name], CELLS[name]
    wrong(
        name,
        "momentum",
        lambda k=torch_kind: k(4, momentum=0.3),
        lambda k=cell_kind: k(4),
        shape,
        train=True,
    )
    wrong(name, "eps", lambda k=torch_kind: k(4, eps=1e-3), lambda k=cell_kind: k(4), shape)
    wrong(
        name,
        "affine",
        lambda k=torch_kind: k(4, affine=False),
        lambda k=cell_kind: k(4),
        shape,
        obstacle=True,
        runs=False,
    )
    wrong(
        name,
        "use_batch_statistics",
        lambda k=torch_kind: k(4, track_running_stats=False),
        lambda k=cell_kind: k(4),
        shape,
    )
    name = f"InstanceNorm{n}d"
    torch_kind = TORCH[name]
    wrong(
        f"{name} > GroupNorm",
        "num_groups",
        lambda k=torch_kind: k(4, affine=True),
        lambda: M.GroupNorm(2, 4),
        shape,
    )
    wrong(
        f"{name} > GroupNorm",
        "track_running_stats",
        lambda k=torch_kind: k(4, affine=True, track_running_stats=True),
        lambda: M.GroupNorm(4, 4),
        shape,
        obstacle=True,
        runs=False,
    )
    wrong(
        name,
        "momentum",
        lambda k=torch_kind: k(4, momentum=0.3),
        lambda k=CELLS[name]: k(4),
        shape,
        runs=False,
    )
    wrong(
        name,
        "eps",
        lambda k=torch_kind: k(4, eps=1e-3),
        lambda k=CELLS[name]: k(4),
        shape,
        runs=False,
    )
    for k in ("Max", "Avg"):
        name = f"{k}Pool{n}d"
        torch_kind, cell_kind = TORCH[name], CELLS[name]
        wrong(name, "kernel_size", lambda k=torch_kind: k(3, 2), lambda k=cell_kind: k(2, 2), shape)
        wrong(name, "stride", lambda k=torch_kind: k(3), lambda k=cell_kind: k(3), shape)
        wrong(name, "padding", lambda k=torch_kind: k(3, 2, 1), lambda k=cell_kind: k(3, 2), shape)
        wrong(
            name,
            "ceil_mode",
            lambda k=torch_kind: k(3, 2, ceil_mode=True),
            lambda k=cell_kind: k(3, 2),
            shape,
        )
    name = f"MaxPool{n}d"
    torch_kind, cell_kind = TORCH[name], CELLS[name]
    wrong(
        name,
        "dilation",
        lambda k=torch_kind: k(3, 2, dilation=2),
        lambda k=cell_kind: k(3, 2),
        shape,
    )
    wrong(
        name,
        "return_indices",
        lambda k=torch_kind: k(3, 2, return_indices=True),
        lambda k=cell_kind: k(3, 2),
        shape,
    )
    name = f"AvgPool{n}d"
    torch_kind, cell_kind = TORCH[name], CELLS[name]
    wrong(
        name,
        "count_include_pad",
        lambda k=torch_kind: k(3, 2, 1, count_include_pad=False),
        lambda k=cell_kind: k(3, 2, pad_mode="pad", padding=1),
        shape,
    )
    if n > 1:
        wrong(
            name,
            "divisor_override",
            lambda k=torch_kind: k(3, 2, divisor_override=3),
            lambda k=cell_kind: k(3, 2),
            shape,
        )
    pads = tuple(range(1, 2 * n + 1))
    for kind in ("ConstantPad", "ReflectionPad", "ReplicationPad"):
        name, extra = f"{kind}{n}d", ((1.5,) if kind == "ConstantPad" else ())
        wrong(
            name,
            "padding",
            lambda k=TORCH[name], p=pads, e=extra: k(p, *e),
            lambda k=CELLS[name], e=extra: k(1, *e),
            shape,
        )
    name = f"ConstantPad{n}d"
    wrong(
        name,
        "value",
        lambda k=TORCH[name], p=pads: k(p, 1.5),
        lambda k=CELLS[name], p=pads: k(p, 0.5),
        shape,
    )
wrong(
    "FrozenBatchNorm2d > BatchNorm2d",
    "use_batch_statistics",
    lambda: FrozenBatchNorm2d(8),
    lambda: M.BatchNorm2d(8),
    IMAGE,
    train=True,
)
wrong(
    "LayerNorm",
    "epsilon",
    lambda: T.LayerNorm(8),
    lambda: M.LayerNorm((8,)),
    1e-3 * arrays([(4, 8)])[0],
)
for what in ("begin_norm_axis", "begin_params_axis"):
    wrong(
        "LayerNorm",
        what,
        lambda: T.LayerNorm((9, 8)),
        lambda: M.LayerNorm((9, 8), epsilon=1e-5),
        (4, 9, 8),
    )
wrong("GroupNorm", "eps", lambda: T.GroupNorm(4, 8, eps=1e-3), lambda: M.GroupNorm(4, 8), IMAGE)
wrong("GroupNorm", "num_groups", lambda: T.GroupNorm(4, 8), lambda: M.GroupNorm(2, 8), IMAGE)
wrong(
    "Embedding",
    "padding_idx",
    lambda: T.Embedding(9, 4, padding_idx=0),
    lambda: M.Embedding(9, 4),
    ints(9, 5),
    obstacle=True,
    runs=False,
)
wrong(
    "Embedding",
    "max_norm",
    lambda: T.Embedding(9, 4, max_norm=0.1),
    lambda: M.Embedding(9, 4),
    ints(9, 5),
    obstacle=True,
)
wrong(
    "AdaptiveAvgPool1d",
    "output_size",
    lambda: T.AdaptiveAvgPool1d(3),
    lambda: M.AdaptiveAvgPool1d(1),
    (2, 4, 9),
)
wrong(
    "AdaptiveAvgPool2d",
    "output_size",
    lambda: T.AdaptiveAvgPool2d((7, 3)),
    lambda: M.AdaptiveAvgPool2d(1),
    IMAGE,
)
wrong(
    "AdaptiveAvgPool3d",
    "output_size",
    lambda: T.AdaptiveAvgPool3d(3),
    lambda: M.AdaptiveAvgPool3d(1),
    (2, 4, 6, 6, 6),
)
wrong(
    "AdaptiveMaxPool2d",
    "output_size",
    lambda: T.AdaptiveMaxPool2d((7, 3)),
    lambda: M.AdaptiveMaxPool2d(1),
    IMAGE,
)
wrong(
    "AdaptiveMaxPool2d",
    "return_indices",
    lambda: T.AdaptiveMaxPool2d(3, return_indices=True),
    lambda: M.AdaptiveMaxPool2d(3),
    IMAGE,
)
POSITIVE = abs(arrays([IMAGE])[0])
wrong("LPPool2d", "norm_type", lambda: T.LPPool2d(2, 3, 2), lambda: M.LPPool2d(1, 3, 2), POSITIVE)
wrong("LPPool2d", "kernel_size", lambda: T.LPPool2d(2, 3, 2), lambda: M.LPPool2d(2, 2, 2), POSITIVE)
wrong("LPPool2d", "stride", lambda: T.LPPool2d(2, 3, 2), lambda: M.LPPool2d(2, 3), POSITIVE)
wrong(
    "LPPool2d",
    "ceil_mode",
    lambda: T.LPPool2d(2, 2, 2, ceil_mode=True),
    lambda: M.LPPool2d(2, 2, 2),
    POSITIVE,
)
for name, shape in (
    ("Dropout", (4, 64)),
    ("Dropout1d", (4, 64, 3)),
    ("Dropout2d", (4, 64, 3, 3)),
    ("Dropout3d", (4, 64, 2, 2, 2)),
):
    wrong(
        name,
        "p",
        lambda k=TORCH[name]: k(0.0),
        lambda k=CELLS[name]: k(p=0.5),
        shape,
        train=True,
    )
wrong("GELU", "approximate", T.GELU, M.GELU, (4, 64))
wrong("LeakyReLU", "alpha", T.LeakyReLU, M.LeakyReLU, (4, 64))
wrong("ELU", "alpha", lambda: T.ELU(0.5), M.ELU, (4, 64), obstacle=True)
wrong("CELU", "alpha", lambda: T.CELU(0.5), M.CELU, (4, 64))
wrong("Hardtanh", "min_val", lambda: T.Hardtanh(-0.5), M.Hardtanh, (4, 64))
wrong("Hardtanh", "max_val", lambda: T.Hardtanh(-1, 0.5), M.Hardtanh, (4, 64))
wrong("Hardshrink > HShrink", "lambd", lambda: T.Hardshrink(0.2), M.HShrink, (4, 64))
wrong("Softshrink > SoftShrink", "lambd", lambda: T.Softshrink(0.2), M.SoftShrink, (4, 64))
wrong(
    "Threshold", "threshold", lambda: T.Threshold(0.1, 0.3), lambda: M.Threshold(0.5, 0.3), (4, 64)
)
wrong("Threshold", "value", lambda: T.Threshold(0.1, 0.3), lambda: M.Threshold(0.1, 0.2), (4, 64))
for name in ("Softmax", "LogSoftmax", "Softmin", "GLU"):
    wrong(name, "axis", lambda k=TORCH[name]: k(1), CELLS[name], (4, 6, 8))
wrong("Upsample", "size", lambda: T.Upsample((17, 18)), lambda: M.Upsample((12, 18)), IMAGE)
wrong(
    "Upsample",
    "scale_factor",
    lambda: T.Upsample(scale_factor=2),
    lambda: M.Upsample(scale_factor=3.0, recompute_scale_factor=True),
    IMAGE,
)
wrong(
    "Upsample",
    "recompute_scale_factor",
    lambda: T.Upsample(scale_factor=2),
    lambda: M.Upsample(scale_factor=2.0),
    IMAGE,
)
wrong(
    "Upsample",
    "coordinates",
    lambda: T.Upsample(scale_factor=1.7, mode="bilinear"),
    lambda: M.Upsample(scale_factor=1.7, mode="bilinear", recompute_scale_factor=True),
    IMAGE,
    obstacle=True,
)
wrong(
    "Upsample",
    "mode",
    lambda: T.Upsample((17, 18), mode="bilinear"),
    lambda: M.Upsample((17, 18)),
    IMAGE,
)
wrong(
    "Upsample",
    "align_corners",
    lambda: T.Upsample((17, 18), mode="bilinear", align_corners=True),
    lambda: M.Upsample((17, 18), mode="bilinear"),
    IMAGE,
)
wrong(
    "PixelShuffle",
    "upscale_factor",
    lambda: T.PixelShuffle(4),
    lambda: M.PixelShuffle(2),
    (2, 16, 3, 3),
)
wrong(
    "PixelUnshuffle",
    "downscale_factor",
    lambda: T.PixelUnshuffle(4),
    lambda: M.PixelUnshuffle(2),
    (2, 3, 8, 8),
)
wrong("ChannelShuffle", "groups", lambda: T.ChannelShuffle(4), lambda: M.ChannelShuffle(2), IMAGE)
wrong("Flatten", "start_dim", lambda: T.Flatten(2), M.Flatten, IMAGE)
wrong("Flatten", "end_dim", lambda: T.Flatten(1, 2), M.Flatten, IMAGE)
wrong("ZeroPad2d", "padding", lambda: T.ZeroPad2d((1, 2, 3, 4)), lambda: M.ZeroPad2d(1), IMAGE)
CLASSES = ((6, 5), ints(5, 6))
LOSSES = {
    "L1Loss": TWO,
    "SmoothL1Loss": TWO,
    "HuberLoss": TWO,
    "MSELoss": TWO,
    "BCELoss": SURE,
    "BCEWithLogitsLoss": ((6, 5), SURE[1]),
    "KLDivLoss": LOGS,
    "CrossEntropyLoss": CLASSES,
    "NLLLoss": (LOGS[0], CLASSES[1]),
    "CosineEmbeddingLoss": (*TWO, 2 * ints(2, 6) - 1),
}
for name, given in LOSSES.items():
    wrong(
        name,
        "reduction",
        lambda k=TORCH[name]: k(reduction="sum"),
        lambda k=CELLS[name]: k(reduction="none"),
        *given,
    )
CTC = (
    np.log(np.float32(np.full((9, 2, 5), 0.2))),
    1 + ints(4, 2, 3),
    np.int32([9, 9]),
    np.int32([3, 2]),
)
wrong("CTCLoss", "reduction", lambda: T.CTCLoss(reduction="sum"), M.CTCLoss, *CTC)
wrong(
    "CTCLoss",
    "blank",
    lambda: T.CTCLoss(blank=4),
    M.CTCLoss,
    arrays([(9, 2, 5)])[0],
    ints(4, 2, 3),
    *CTC[2:],
)
ONCE = (CTC[0][:3], np.ones((2, 3), np.int32), np.int32([3, 3]), np.int32([3, 3]))
wrong(
    "CTCLoss",
    "zero_infinity",
    lambda: T.CTCLoss(zero_infinity=True),
    M.CTCLoss,
    *ONCE,
    obstacle=True,
)
wrong(
    "SmoothL1Loss",
    "beta",
    lambda: T.SmoothL1Loss(beta=0.3),
    lambda: M.SmoothL1Loss(reduction="mean"),
    *TWO,
)
wrong("HuberLoss", "delta", lambda: T.HuberLoss(delta=0.3), M.HuberLoss, *TWO)
wrong(
    "CrossEntropyLoss",
    "ignore_index",
    lambda: T.CrossEntropyLoss(ignore_index=2),
    M.CrossEntropyLoss,
    *CLASSES,
)
wrong(
    "CrossEntropyLoss",
    "label_smoothing",
    lambda: T.CrossEntropyLoss(label_smoothing=0.2),
    M.CrossEntropyLoss,
    *CLASSES,
)
wrong("NLLLoss", "ignore_index", lambda: T.NLLLoss(ignore_index=2), M.NLLLoss, LOGS[0], CLASSES[1])
wrong(
    "CosineEmbeddingLoss",
    "margin",
    lambda: T.CosineEmbeddingLoss(0.3),
    M.CosineEmbeddingLoss,
    abs(arrays(TWO)[0]),
    abs(arrays(TWO)[1]),
    -np.ones(6, np.int32),
)
for what in ("reduction", "sparse"):
    wrong(
        "CrossEntropyLoss > SoftmaxCrossEntropyWithLogits",
        what,
        T.CrossEntropyLoss,
        M.SoftmaxCrossEntropyWithLogits,
        *CLASSES,
    )
for name in ("LSTM", "GRU", "RNN"):
    torch_kind, cell_kind, shape = TORCH[name], CELLS[name], (3, 3, 5)
    wrong(
        name,
        "batch_first",
        lambda k=torch_kind: k(5, 4, batch_first=True),
        lambda k=cell_kind: k(5, 4),
        shape,
    )
    wrong(
        name,
        "dropout",
        lambda k=torch_kind: k(5, 4, 2),
        lambda k=cell_kind: k(5, 4, 2, dropout=0.5),
        shape,
        train=True,
    )
    wrong(
        name,
        "has_bias",
        lambda k=torch_kind: k(5, 4),
        lambda k=cell_kind: k(5, 4, has_bias=False),
        shape,
        obstacle=True,
        runs=False,
    )
    wrong(
        name,
        "num_layers",
        lambda k=torch_kind: k(5, 4, 2),
        lambda k=cell_kind: k(5, 4),
        shape,
        obstacle=True,
        runs=False,
    )
    wrong(
        name,
        "bidirectional",
        lambda k=torch_kind: k(5, 4, bidirectional=True),
        lambda k=cell_kind: k(5, 4),
        shape,
        obstacle=True,
        runs=False,
    )
wrong(
    "RNN", "nonlinearity", lambda: T.RNN(5, 4, nonlinearity="relu"), lambda: M.RNN(5, 4), (3, 3, 5)
)
wrong(
    "LSTM",
    "proj_size",
    lambda: T.LSTM(5, 4, proj_size=2),
    lambda: M.LSTM(5, 4),
    (3, 3, 5),
    obstacle=True,
    runs=False,
)
Q = ((5, 3, 8), (5, 3, 8), (5, 3, 8))
wrong(
    "MultiheadAttention",
    "num_heads",
    lambda: T.MultiheadAttention(8, 2),
    lambda: M.MultiheadAttention(8, 4),
    *Q,
)
wrong(
    "MultiheadAttention",
    "dropout",
    lambda: T.MultiheadAttention(8, 2),
    lambda: M.MultiheadAttention(8, 2, dropout=0.5),
    *Q,
    train=True,
)
wrong(
    "MultiheadAttention",
    "has_bias",
    lambda: T.MultiheadAttention(8, 2),
    lambda: M.MultiheadAttention(8, 2, has_bias=False),
    *Q,
    obstacle=True,
    runs=False,
)
wrong(
    "MultiheadAttention",
    "add_zero_attn",
    lambda: T.MultiheadAttention(8, 2, add_zero_attn=True),
    lambda: M.MultiheadAttention(8, 2),
    *Q,
)
wrong(
    "MultiheadAttention",
    "batch_first",
    lambda: T.MultiheadAttention(8, 2, batch_first=True),
    lambda: M.MultiheadAttention(8, 2),
    *Q,
)
for name, given in (
    ("TransformerEncoderLayer", ((5, 3, 8),)),
    ("TransformerDecoderLayer", ((5, 3, 8), (6, 3, 8))),
):
    torch_kind, cell_kind = TORCH[name], CELLS[name]
    wrong(
        name,
        "activation",
        lambda k=torch_kind: k(8, 2, 16),
        lambda k=cell_kind: k(8, 2, 16, activation="gelu"),
        *given,
    )
    wrong(
        name,
        "norm_first",
        lambda k=torch_kind: k(8, 2, 16, norm_first=True),
        lambda k=cell_kind: k(8, 2, 16),
        *given,
    )
    wrong(
        name,
        "nhead",
        lambda k=torch_kind: k(8, 2, 16),
        lambda k=cell_kind: k(8, 4, 16),
        *given,
        obstacle=True,
    )
    wrong(
        name,
        "dropout",
        lambda k=torch_kind: k(8, 2, 16, 0.0),
        lambda k=cell_kind: k(8, 2, 16),
        *given,
        obstacle=True,
        runs=False,
    )
    wrong(
        name,
        "layer_norm_eps",
        lambda k=torch_kind: k(8, 2, 16, layer_norm_eps=1e-2),
        lambda k=cell_kind: k(8, 2, 16),
        *given,
        obstacle=True,
    )
    wrong(
        name,
        "batch_first",
        lambda k=torch_kind: k(8, 2, 16, batch_first=True),
        lambda k=cell_kind: k(8, 2, 16),
        *[(3, *s[1:]) for s in given],
        obstacle=True,
    )
