"""What each arithmetic makes of one layer: the table behind "why is there a 1e-5 difference?"."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

import torch
from torch import nn

from migrate_kit.errors import MigrateError
from migrate_kit.layers.metrics import effective_bits, unit_roundoff
from migrate_kit.layers.runners.borrowed import LINEAR_LAYERS, changed_weight, in_format
from migrate_kit.results import Finding, Result, table_html

if TYPE_CHECKING:
    import pandas as pd

Rounding = Callable[[torch.Tensor], torch.Tensor]


def round_mantissa(t: torch.Tensor, bits: int) -> torch.Tensor:
    """Round float32 to ``bits`` stored mantissa bits, ties to even; the exponent keeps its range.

    HF32 has 11 (CANN, ATC option ``--allow_hf32``), TF32 has 10, bfloat16 has 7.
    """
    drop = 23 - bits
    i = t.contiguous().view(torch.int32)
    rounded = (i + (1 << (drop - 1)) - 1 + ((i >> drop) & 1)) & ~((1 << drop) - 1)
    return torch.where(t.isfinite(), rounded.view(torch.float32), t)


def _int8(t: torch.Tensor, dims: tuple[int, ...]) -> torch.Tensor:
    scale = t.abs().amax(dims, keepdim=True) / 127
    return (t / scale.clamp_min(1e-30)).round() * scale


# Operands rounded, products summed in float32: what the format alone costs, no device's kernel.
# int8 is symmetric absmax, one scale for the input and one per output channel of the weight.
_OPERANDS: Final[dict[str, tuple[Rounding, Rounding]]] = {
    "HF32": (lambda x: round_mantissa(x, 11), lambda w: round_mantissa(w, 11)),
    "TF32": (lambda x: round_mantissa(x, 10), lambda w: round_mantissa(w, 10)),
    "fp16": (lambda x: x.half().float(), lambda w: w.half().float()),
    "bf16": (lambda x: x.bfloat16().float(), lambda w: w.bfloat16().float()),
    "int8": (
        lambda x: _int8(x, tuple(range(x.dim()))),
        lambda w: _int8(w, tuple(range(1, w.dim()))),
    ),
}


@dataclass(frozen=True)
class FormatRow:
    """One input in one arithmetic: the layer's output against float64.

    ``u_wx`` is the mean of ``u |W| * |x|``, the size of one float32 rounding error of this layer on
    this input; ``bits`` as in :class:`migrate_kit.layers.rows.LayerRow`.
    """

    input: str
    arithmetic: str
    mean_abs: float
    max_abs: float
    rel_l2: float
    bits: float
    mean_output: float
    u_wx: float


class RoundingTable(Result):
    """What :func:`rounding_table` measured."""

    kind = "rounding table"

    def __init__(self, rows: list[FormatRow], n: int) -> None:
        self.rows, self.n = rows, n
        self.findings: list[Finding] = []

    def to_frame(self) -> pd.DataFrame:
        """Return one line an input, one column an arithmetic: mean absolute differences."""
        import pandas as pd

        frame = pd.DataFrame([asdict(r) for r in self.rows])
        wide = frame.pivot_table(
            index="input", columns="arithmetic", values="mean_abs", sort=False
        ).reset_index()
        firsts = frame.drop_duplicates("input")
        wide.insert(1, "mean |y|", firsts["mean_output"].to_numpy())
        wide["u|W||x|"] = firsts["u_wx"].to_numpy()
        wide.columns.name = None
        return wide

    def explain(self, mean_abs: float) -> dict[str, str]:
        """Say for every input what a measured mean difference would be: rounding, or which format.

        The nearest arithmetic on a logarithmic scale; within a factor of three of what float32
        gives it is rounding.
        """
        if not mean_abs > 0:
            raise MigrateError(
                f"a mean absolute difference of {mean_abs} needs no explanation",
                "explain(mean_abs)",
                "pass the mean of |a - b|, above zero",
            )
        answers = {}
        for name in dict.fromkeys(r.input for r in self.rows):
            rows = [r for r in self.rows if r.input == name]
            near = min(rows, key=lambda r: abs(math.log(max(r.mean_abs, 1e-300) / mean_abs)))
            # Two kernels may agree to the last bit; one rounding step is the least there is.
            fp32 = max(r.mean_abs or r.u_wx for r in rows if r.arithmetic == "fp32") or 1e-300
            if mean_abs <= 3 * fp32:
                answers[name] = "float32 rounding"
            else:
                times = f"{mean_abs / fp32:.0f} times float32 rounding"
                answers[name] = f"{times}; nearest {near.arithmetic}"
        return answers

    def __repr__(self) -> str:
        inputs = len({r.input for r in self.rows})
        return f"RoundingTable({inputs} inputs, n = {self.n} products a sum)"

    def _html(self) -> str:
        frame = self.to_frame()
        rows = [
            [r.iloc[0], *(f"{v:.1e}" if v < 0.01 else f"{v:.3g}" for v in r.iloc[1:])]
            for _, r in frame.iterrows()
        ]
        return table_html(f"{self!r}: mean |difference| from float64", list(frame.columns), rows)


def rounding_table(layer: nn.Module, inputs: Mapping[str, torch.Tensor]) -> RoundingTable:
    """Compute one layer in every arithmetic on several inputs, against float64.

    Parameters
    ----------
    layer : nn.Module
        A convolution or linear layer; its bias is left out. It is put back as it was.
    inputs : dict of str to Tensor
        float32 inputs by the name they have in the table.

    Returns
    -------
    RoundingTable
        ``fp32`` is the difference of two float32 kernels (oneDNN and native); the other formats
        round the operands and sum in float32.

    Raises
    ------
    MigrateError
        If the layer has no weight to round.
    """
    weight = getattr(layer, "weight", None)
    if not isinstance(layer, LINEAR_LAYERS) or not isinstance(weight, nn.Parameter):
        raise MigrateError(
            f"{type(layer).__name__} has no weight matrix",
            "rounding_table(layer)",
            "pass a convolution or a linear layer",
        )
    wrong = [n for n, x in inputs.items() if x.dtype != torch.float32 or not x.numel()]
    if wrong or not inputs or weight.dtype != torch.float32:
        raise MigrateError(
            f"no float32 values in {', '.join(wrong) or 'the layer or the inputs'}",
            "rounding_table(layer, inputs)",
            "pass a float32 layer and {'name': float32 tensor}",
        )
    try:
        return _measured(layer, weight, inputs)
    except RuntimeError as error:
        raise MigrateError(
            f"the layer cannot take an input: {error}", f"{layer}", "check the inputs' shapes"
        ) from error


def _measured(
    layer: nn.Module, weight: nn.Parameter, inputs: Mapping[str, torch.Tensor]
) -> RoundingTable:
    rows: list[FormatRow] = []
    u = unit_roundoff(torch.float32)
    with torch.no_grad():
        for name, x in inputs.items():
            with in_format(layer, torch.float64), changed_weight(layer):
                exact = layer(x.double())
            with in_format(layer, torch.float64), changed_weight(layer, torch.abs):
                absolute = layer(x.double().abs())
            with in_format(layer, torch.float64), changed_weight(layer, torch.square):
                squares = layer(x.double().square()).mean()
            with changed_weight(layer):
                plain = layer(x)
                with torch.backends.mkldnn.flags(enabled=False, allow_tf32=None):
                    native = layer(x)
            results = {"fp32": (native, plain.double())}
            for kind, (of_input, of_weight) in _OPERANDS.items():
                with changed_weight(layer, of_weight):
                    results[kind] = (layer(of_input(x)), exact)
            for kind, (value, base) in results.items():
                d = value.double() - base
                mse = float(d.square().mean())
                bits = effective_bits(float(squares), mse)
                rows.append(
                    FormatRow(
                        name,
                        kind,
                        float(d.abs().mean()),
                        float(d.abs().max()),
                        float(d.norm() / base.norm()) if base.any() else 0.0,
                        bits,
                        float(exact.abs().mean()),
                        u * float(absolute.mean()),
                    )
                )
    return RoundingTable(rows, weight[0].numel())
