"""One line of a comparison, and the words it may use."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

Verdict = Literal["same", "look", "differs", "unpaired"]
Origin = Literal["made here", "inherited", ""]

# The channels a trace may hold, in the order in which a step produces them.
CHANNELS = (
    "input",
    "forward",
    "output",
    "loss",
    "gradient",
    "parameter gradient",
    "buffer",
    "update",
    "optimizer",
)


@dataclass(frozen=True)
class LayerRow:
    """How far one layer's tensor is apart in two runs.

    Numbers that could not be measured are NaN; ``source`` says from what they were measured
    (``tensor``: every element; ``sketch``: the 256-float sketch; ``statistics``; or nothing).

    Attributes
    ----------
    layer, candidate : str
        The name in the reference and in the candidate (empty where it is unpaired). A second call
        of the same module is ``name#1``; an output inside a tuple or dict ``name[0]``.
    channel : str
        One of :data:`CHANNELS`.
    kind : str
        The class of the module or the ONNX operator.
    shape, candidate_shape : tuple of int
    dtype, candidate_dtype : str
    R : float
        Difference over the rounding noise of this layer; <= 2 same arithmetic, <= 8 look.
    rel_l2 : float
        ``||candidate - reference|| / ||reference||``.
    noise : float
        The same ratio for the reference run against float64: the yardstick.
    rho : float
        ``max |d| / (2 u (|W| * |x|))`` of this one operator on the candidate's own input.
    bits : float
        Effective significand bits of this one operator's arithmetic.
    arithmetic : str
        The format that ``bits`` looks like: fp32, HF32, TF32/fp16, bf16, int8.
    local : float
        Residual of this layer alone over its own rounding noise; above 8 it is made here.
    origin : str
        ``made here``, ``inherited`` or empty.
    verdict : str
        ``same``, ``look``, ``differs`` or ``unpaired``.
    max_abs, mean_abs, mse, one_minus_cosine : float
    nan, inf : tuple of int
        How many in the reference and in the candidate.
    note : str
        One sentence where a number cannot say it.
    """

    layer: str
    candidate: str = ""
    channel: str = "forward"
    kind: str = ""
    shape: tuple[int, ...] = ()
    candidate_shape: tuple[int, ...] = ()
    dtype: str = ""
    candidate_dtype: str = ""
    R: float = math.nan
    rel_l2: float = math.nan
    noise: float = math.nan
    rho: float = math.nan
    bits: float = math.nan
    arithmetic: str = ""
    local: float = math.nan
    origin: Origin = ""
    verdict: Verdict = "same"
    max_abs: float = math.nan
    mean_abs: float = math.nan
    mse: float = math.nan
    one_minus_cosine: float = math.nan
    nan: tuple[int, int] = (0, 0)
    inf: tuple[int, int] = (0, 0)
    source: str = ""
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; NaN and infinities become None or text."""

        def plain(value: Any) -> Any:
            if isinstance(value, float) and not math.isfinite(value):
                return None if math.isnan(value) else ("inf" if value > 0 else "-inf")
            return list(value) if isinstance(value, tuple) else value

        return {k: plain(v) for k, v in asdict(self).items()}
