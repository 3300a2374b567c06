"""What was written for MindSpore, tensor by tensor."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from migrate_kit.results import Finding, Result, counted, findings_html, plain, table_html

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pandas as pd

_SHOWN = 12
_HEAD = ("torch", "mindspore", "transform", "dtype", "written as", "shape")


class Row(NamedTuple):
    """One tensor of the file; the shape is the one in the file."""

    torch_name: str
    name: str
    transform: str
    dtype: str
    written_as: str
    shape: tuple[int, ...]


class WrittenCheckpoint(Result):
    """What :func:`migrate_kit.to_mindspore_checkpoint` wrote.

    Attributes
    ----------
    path : Path
    format : str
        ``ckpt`` or ``safetensors``: what ``mindspore.load_checkpoint`` has to be told.
    rows : list of Row
        Each tensor's names, transform, dtypes and shape.
    left_out : list of str
        The tensors of the source that the file lacks.
    """

    kind = "mindspore_checkpoint"

    def __init__(
        self,
        path: Path,
        form: str,
        rows: Sequence[Row],
        left_out: Sequence[str],
        findings: Sequence[Finding],
    ) -> None:
        self.path, self.format = path, form
        self.rows, self.left_out = list(rows), list(left_out)
        self.findings: list[Finding] = list(findings)

    @property
    def names(self) -> dict[str, str]:
        """MindSpore's name for each of torch's."""
        return {row.torch_name: row.name for row in self.rows}

    def to_dict(self) -> dict[str, Any]:
        """Return what a project keeps: names, and no tensor."""
        return super().to_dict() | {
            "file": self.path.name,
            "format": self.format,
            "tensors": len(self.rows),
            "names": {plain(old): plain(new) for old, new in self.names.items()},
            "left_out": [plain(name) for name in self.left_out],
        }

    def to_frame(self) -> pd.DataFrame:
        """Return one line a tensor: both names, the transform, both dtypes, the shape written."""
        import pandas as pd

        return pd.DataFrame([tuple(row) for row in self.rows], columns=list(_HEAD))

    def __repr__(self) -> str:
        errors = [f"{f.what}; " for f in self.findings if f.level == "error"]
        out = f"; {len(self.left_out):,} left out" if self.left_out else ""
        held = f"{counted(len(self.rows), 'tensor')}, {self._dtypes()}"
        return f"WrittenCheckpoint({''.join(errors[:1])}{plain(self.path.name)}: {held}{out})"

    def _dtypes(self) -> str:
        counts = Counter(row.written_as for row in self.rows)
        return ", ".join(f"{dtype} ({count:,})" for dtype, count in counts.most_common())

    def _html(self) -> str:
        renamed = sum(row.torch_name != row.name for row in self.rows)
        reshaped = sum(row.transform != "identity" for row in self.rows)
        load = f'mindspore.load_checkpoint("{plain(self.path.name)}", format="{self.format}")'
        lines = [
            ("file", plain(self.path.name)),
            ("load it with", load),
            ("tensors", f"{len(self.rows):,}, {renamed:,} renamed, {reshaped:,} reshaped"),
            ("dtypes", self._dtypes()),
            ("left out", f"{len(self.left_out):,}"),
        ]
        some = f"the first {_SHOWN} of " if len(self.rows) > _SHOWN else ""
        shown = [tuple(plain(str(cell)) for cell in row) for row in self.rows[:_SHOWN]]
        return (
            table_html("MindSpore checkpoint", ("what", "value"), lines)
            + findings_html(self.findings)
            + table_html(f"{some}{counted(len(self.rows), 'tensor')}", _HEAD, shown)
        )
