"""What porting found: where every weight went, what settings differ, and the proof."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from migrate_kit.results import Finding, Result, counted, number, plain, table_html

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd
    import torch

    from migrate_kit.layers.compare import LayerDiff
    from migrate_kit.porting.hyperparameters import Fix
    from migrate_kit.porting.steps import Part
    from migrate_kit.results import Level

_SHOWN = 12


@dataclass(frozen=True, slots=True)
class Mapped:
    """One parameter of the cell, and what of PyTorch's is in it.

    ``evidence`` is ``data`` (its layer was given the same input as PyTorch's), ``data and order``
    (as were others), ``order``, ``shape`` or ``neighbours``; ``distance`` is how far the inputs
    were apart, and ``rivals`` how many others came into question.
    """

    torch_name: str
    cell_name: str
    transform: str
    evidence: str
    distance: float
    rivals: int
    parts: tuple[Part, ...]
    shape: tuple[int, ...]


class PortReport(Result):
    """What :func:`migrate_kit.port` did.

    Attributes
    ----------
    mapping : list of Mapped
        In the order in which the cell runs.
    fixes : list of Fix
        Settings of the cell that differ, with the ``line`` to write.
    left_out, unfilled : list of str
        PyTorch's tensors without a place; the cell's trained parameters without a source.
    diff : LayerDiff or None
        The networks layer by layer with the real weights; None where none were loaded.
    R : float
        Of the output: difference over the float32 rounding of PyTorch's own output.
    random_error : float
        Relative difference of the outputs with random weights and every fix applied.
    loaded, applied : bool
        Whether the cell holds PyTorch's weights, and the corrected settings.
    path : Path or None
        The file written.
    """

    kind = "port"

    def __init__(
        self, model: torch.nn.Module, cell: Any, mapping: list[Mapped], fixes: list[Fix]
    ) -> None:
        self.model, self.cell = type(model).__name__, type(cell).__name__
        self.mapping, self.fixes = mapping, fixes
        self.left_out: list[str] = []
        self.unfilled: list[str] = []
        self.findings: list[Finding] = []
        self.diff: LayerDiff | None = None
        self.R = self.random_error = math.nan
        self.loaded = self.applied = False
        self.path: Path | None = None

    def judge(self) -> None:
        """Read the verdict off the comparison."""
        if self.diff is None:
            return
        outputs = [r for r in self.diff.rows if r.channel == "output" and r.verdict != "unpaired"]
        self.R = max((r.R for r in outputs), default=math.nan)
        if not outputs:
            what = "the outputs could not be compared: they have other names or shapes"
            self.findings.append(Finding("warning", what, "", "compare them yourself"))
        elif 2 < self.R <= 8:
            what = (
                f"the outputs differ by a little more than PyTorch's rounding: R = {number(self.R)}"
            )
            why = "MindSpore's exp, tanh and sigmoid are coarser on the CPU: .diff shows where"
            self.findings.append(Finding("info", what, "", why))
        elif self.R > 8:
            output = [f for f in self.fixes if f.matters == "output"]
            fix = "apply_fixes=True, or write the lines listed" if output else "see .diff"
            mended = bool(output) and not self.applied and not self.left_out
            level: Level = "warning" if mended else "error"
            what = f"with all weights in place the outputs still differ: R = {number(self.R)}"
            self.findings.insert(0, Finding(level, what, "", fix))

    def to_frame(self) -> pd.DataFrame:
        """Return one line a parameter of the cell."""
        import pandas as pd

        head = ("torch", "mindspore", "transform", "evidence", "distance", "rivals", "shape")
        rows = [
            (r.torch_name, r.cell_name, r.transform, r.evidence, r.distance, r.rivals, r.shape)
            for r in self.mapping
        ]
        return pd.DataFrame(rows, columns=list(head))

    def fixes_frame(self) -> pd.DataFrame:
        """Return one line a setting that differs."""
        import pandas as pd

        head = (
            "cell",
            "torch",
            "kind",
            "what",
            "torch_value",
            "cell_value",
            "line",
            "matters",
            "before",
            "after",
        )
        names = {"torch": "module"}
        rows = [[getattr(f, names.get(h, h)) for h in head] for f in self.fixes]
        return pd.DataFrame(rows, columns=list(head))

    def to_dict(self) -> dict[str, Any]:
        """Return what a project keeps."""
        return super().to_dict() | {
            "mapping": {plain(r.cell_name): plain(r.torch_name) for r in self.mapping},
            "fixes": [
                {"cell": plain(f.cell), "what": f.what, "line": f.line, "matters": f.matters}
                for f in self.fixes
            ],
            "left_out": [plain(n) for n in self.left_out],
            "unfilled": [plain(n) for n in self.unfilled],
            "R": None if math.isnan(self.R) else self.R,
            "loaded": self.loaded,
            "applied": self.applied,
        }

    def show(self) -> Any:
        """Return the live comparison, layer by layer; the static view where nothing was loaded."""
        return super().show() if self.diff is None else self.diff.show()

    def __repr__(self) -> str:
        if not self.loaded:
            return f"PortReport({self.findings[0].what})"
        output = [f for f in self.fixes if f.matters == "output"]
        settings = counted(len(output), "setting")
        state = "corrected" if self.applied else "to be corrected"
        missing = len(self.left_out) + len(self.unfilled)
        gaps = f", {counted(missing, 'tensor')} without a counterpart" if missing else ""
        return (
            f"PortReport({self.model} to {self.cell}: {counted(len(self.mapping), 'parameter')}"
            f" filled{gaps}; {settings} {state}; R = {number(self.R)} at the output)"
        )

    def _html(self) -> str:
        rows = [
            (plain(r.torch_name), plain(r.cell_name), r.transform, r.evidence)
            for r in self.mapping[:_SHOWN]
        ]
        more = len(self.mapping) - len(rows)
        rest = f": the first {len(rows)}, {more} more in .to_frame()" if more > 0 else ""
        caption = f"Where the weights went{rest}"
        fixes = [
            (
                plain(f.cell),
                f.what,
                str(f.torch_value),
                str(f.cell_value),
                f.line or f.obstacle,
                number(f.before),
                number(f.after),
            )
            for f in self.fixes
            if f.matters == "output"
        ]
        head = ("cell", "setting", "PyTorch", "cell has", "write", "layer off by", "with it")
        table = ""
        if fixes:
            over = len(fixes) - _SHOWN
            title = "Settings that differ" + (
                f": {over} more in .fixes_frame()" if over > 0 else ""
            )
            table = table_html(title, head, fixes[:_SHOWN])
        names = ("torch", "mindspore", "transform", "evidence")
        return super()._html() + table + (table_html(caption, names, rows) if rows else "")
