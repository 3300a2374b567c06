"""Convert a value to another dtype, and say what that lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from migrate_kit.dtypes.exchange import FRAMEWORKS, Framework, make, take
from migrate_kit.dtypes.losses import Loss, errors, find_losses
from migrate_kit.dtypes.mapping import DType, of
from migrate_kit.errors import MigrateError
from migrate_kit.results import Finding, Result, findings_html, number, table_html

if TYPE_CHECKING:
    import pandas as pd


class Converted(Result):
    """A converted value and what the conversion lost.

    Attributes
    ----------
    value : tensor or array
        In the framework asked for.
    before, asked, after : DType
        What it was, what was asked for, and what it is now; a device may lower what was asked for.
    elements : int
    losses : list of Loss
        Each with its name, count and the coordinate of the first value.
    max_abs, max_rel : float
        Largest absolute and relative error of the values that stayed finite.
    changed : int
        How many values differ at all.
    """

    kind = "conversion"

    def __init__(
        self,
        value: Any,
        *,
        names: tuple[DType, DType, DType],
        elements: int,
        losses: list[Loss],
        figures: tuple[float, float, int],
        findings: list[Finding],
    ) -> None:
        self.value = value
        self.before, self.asked, self.after = names
        self.elements, self.losses = elements, losses
        self.max_abs, self.max_rel, self.changed = figures
        self.findings = findings

    @property
    def lossless(self) -> bool:
        """Whether every value is what it was."""
        return not self.changed and not any(x.level != "info" for x in self.losses)

    def count(self, name: str) -> int:
        """Return how many values were lost in one way: ``overflow`` or ``nan``, say."""
        return sum(x.count for x in self.losses if x.name == name)

    def __repr__(self) -> str:
        worst = next((f.what for f in self.findings if f.level in ("error", "warning")), "")
        said = worst or ("nothing lost" if self.lossless else f"{self.changed} rounded")
        return f"{said} ({self.before.name} to {self.after.name}, {self.elements} values)"

    def to_frame(self) -> pd.DataFrame:
        """Return one row a loss: what, how grave, how many, where first."""
        import pandas as pd

        rows = [(x.name, x.level, x.count, x.first, x.what) for x in self.losses]
        return pd.DataFrame(rows, columns=["loss", "level", "count", "first", "what"])

    def to_dict(self) -> dict[str, Any]:
        """Return the summary, the losses and the errors, without the value."""
        return super().to_dict() | {
            "before": self.before.name,
            "after": self.after.name,
            "elements": self.elements,
            "losses": {x.name: x.count for x in self.losses},
            "max_abs": self.max_abs,
            "max_rel": self.max_rel,
        }

    def _html(self) -> str:
        head = ["from", "to", "values", "changed", "max abs error", "max rel error"]
        row = [
            self.before.name,
            self.after.name,
            str(self.elements),
            str(self.changed),
            number(self.max_abs),
            number(self.max_rel),
        ]
        return table_html("conversion", head, [row]) + findings_html(self.findings)


def convert(value: Any, to: Any, framework: Framework | None = None) -> Converted:
    """Convert a value to another dtype and count what that loses.

    Parameters
    ----------
    value : tensor, array, number or list of numbers
        Of torch, NumPy or MindSpore; Python's floats are float64 and its integers int64.
    to : Any
        Any spelling that :func:`migrate_kit.dtypes.of` knows.
    framework : {"torch", "torch_npu", "numpy", "mindspore"}, optional
        Whose result; by default that of ``value``, torch for plain numbers. ``torch_npu`` gives on
        the CPU what a cast on an NPU gives: float32 where float64 was asked for.

    Returns
    -------
    Converted
        ``.value``, ``.losses``, ``.max_abs``, ``.max_rel``.

    Raises
    ------
    MigrateError
        If the value holds no numbers, or the framework has no such dtype or is not installed.

    Notes
    -----
    The float64 rule: Ascend/pytorch ToKernelNpu.cpp. MindSpore's tensors are recognised by their
    ``asnumpy`` and converted by their ``astype``.

    Examples
    --------
    >>> import numpy as np
    >>> c = convert(np.array([1.0, 70000.0], np.float32), "float16")
    >>> c.count("overflow"), c.losses[0].first, c.ok
    (1, (1,), False)
    >>> convert([1.5, 2.0], "bfloat16", framework="numpy").lossless
    True
    """
    if framework is not None and framework not in FRAMEWORKS:
        raise MigrateError(
            f"no framework {framework!r}", "framework=", f"one of: {', '.join(FRAMEWORKS)}"
        )
    wanted = of(to)
    # NumPy warns of the very losses that are counted here, and of some NaN that it only copies.
    with np.errstate(all="ignore"):
        taken = take(value)
        home = framework or taken.framework
        made, after, note = make(taken, value, wanted, home)
        result = take(made).array
        held = wanted if note == "values" else after  # bfloat16's values, in NumPy's float32
        losses = find_losses(taken.array, result, held)
        figures = errors(taken.array, result)
    findings = _notes(taken.dtype, wanted, note, taken.note if home == "numpy" else "")
    findings += [_finding(x, taken.array.size) for x in losses]
    if figures[0] and held.kind in ("float", "complex"):
        text = f"values that stay finite move by at most {number(figures[0])}"
        text += f", relatively {number(figures[1])}"
        findings.append(Finding("info", text, f"{taken.dtype.name} to {held.name}"))
    names = (taken.dtype, wanted, after)
    return Converted(
        made,
        names=names,
        elements=int(taken.array.size),
        losses=losses,
        figures=figures,
        findings=findings,
    )


def _notes(before: DType, wanted: DType, note: str, through: str) -> list[Finding]:
    found = []
    if note == "lowered":
        found.append(
            Finding(
                "warning",
                "torch_npu makes float32 of it, with one warning in the whole process",
                f"{before.name} to {wanted.name}",
                "compute in float64 on the CPU",
            )
        )
    if note == "values":
        text = "NumPy has no bfloat16: these are float32 with the values that bfloat16 holds"
        found.append(Finding("warning", text, "", "pip install ml_dtypes"))
    if through:
        found.append(Finding("info", through, "", "tensor.float().numpy()"))
    return found


def _finding(loss: Loss, size: int) -> Finding:
    where = f"first at {list(loss.first)}" if loss.first else ""
    return Finding(loss.level, f"{loss.count} of {size} values {loss.what}", where, loss.fix)
