"""The live view of a comparison: a table of layers, and what the chosen one differs in."""

from __future__ import annotations

import base64
import html
import json
import math
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import traitlets

from migrate_kit.files import write_text
from migrate_kit.widgets import wire
from migrate_kit.widgets.detail import Limits
from migrate_kit.widgets.view import View, joined, page
from migrate_kit.widgets.wire import shorten

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from IPython.display import HTML

    from migrate_kit.layers.rows import LayerRow

# In the order in which they use each other.
_SCRIPTS = ("text.js", "draw.js", "detail.js", "list_keys.js", "grid.js", "layer_diff.js")
_NUMBERS = ("R", "rel_l2", "max_abs", "bits", "rho")
_WORDS = ("kind", "shape", "channel", "verdict", "origin", "arithmetic")
_PAGE_LIMITS = Limits(rows=32, columns=96, bins=48, points=800, extremes=50, worst=10)
_PAGE_BYTES = 2_000_000
_PAGE_HEIGHT = 880


class ShownDiff(wire.Diff, Protocol):
    """A comparison with the two views that need no script."""

    @property
    def first_divergence(self) -> LayerRow | None:
        """The first row that differs."""

    def _repr_html_(self) -> str: ...


def script() -> str:
    """Return the widget's JavaScript as one module."""
    return joined(*_SCRIPTS)


def style() -> str:
    """Return the widget's style sheet."""
    return joined("theme.css", "layer_diff.css")


class LayerDiffWidget(View):
    """Show a comparison as a table that sorts, filters and opens one layer at a time.

    Parameters
    ----------
    diff : LayerDiff
        The comparison; its tensors stay in Python and are read when a layer is chosen.

    Attributes
    ----------
    selected : int
        The row that is marked, -1 for none; can be set.
    """

    _esm: ClassVar[str] = script()
    _css: ClassVar[str] = style()

    table = traitlets.Unicode("").tag(sync=True)
    selected = traitlets.Int(-1).tag(sync=True)
    request = traitlets.Dict({"number": 0, "row": -1}).tag(sync=True)
    detail = traitlets.Bytes(b"").tag(sync=True)

    def __init__(self, diff: ShownDiff) -> None:
        self._diff = diff
        super().__init__(table=table_of(diff))

    @traitlets.observe("request")
    def _answer(self, change: Mapping[str, Any]) -> None:
        asked = change["new"]
        row, number = asked.get("row"), asked.get("number")
        # It comes from a browser, and a saved notebook may hold anything.
        if isinstance(row, int) and isinstance(number, int):
            self.detail = wire.answer(self._diff, row, number)

    def __repr__(self) -> str:
        # anywidget's own holds a memory address, which no two runs of a notebook share.
        return repr(self._diff)

    def _static_html(self) -> str:
        return self._diff._repr_html_()


def table_of(diff: ShownDiff) -> str:
    """Return the rows as JSON columns: words once with an index a row, numbers cut to 5 digits.

    2,000 rows take 200 KB instead of the 1.5 MB of 2,000 objects with all their keys.
    """
    rows = diff.rows
    columns: dict[str, Any] = {"layer": [shorten(r.layer or r.candidate) for r in rows]}
    for key in _WORDS:
        columns[key] = _words(_shape(r) if key == "shape" else getattr(r, key) for r in rows)
    for key in _NUMBERS:
        columns[key] = [_number(getattr(r, key)) for r in rows]
    for key in ("nan", "inf"):
        columns[key] = {i: getattr(r, key) for i, r in enumerate(rows) if any(getattr(r, key))}
    table = {"count": len(rows), "first": _first(diff), "columns": columns}
    return json.dumps(table, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _first(diff: ShownDiff) -> int:
    wanted = diff.first_divergence
    return next((i for i, row in enumerate(diff.rows) if row is wanted), -1)


def _words(values: Iterable[str]) -> dict[str, list[Any]]:
    places: dict[str, int] = {}
    at = [places.setdefault(shorten(v, 100), len(places)) for v in values]
    return {"words": list(places), "at": at}


def _shape(row: LayerRow) -> str:
    sides = ["×".join(map(str, s)) for s in (row.shape, row.candidate_shape)]
    if row.verdict == "unpaired" or not row.candidate_shape or sides[0] == sides[1]:
        return sides[0] or sides[1]
    return f"{sides[0]} → {sides[1]}"


def _number(value: float) -> float | str | None:
    if math.isnan(value):
        return None
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return float(f"{value:.5g}")


def as_page(diff: ShownDiff, rows: int = 50) -> HTML:
    """Return the same view as one self-contained output: no widget manager, no kernel.

    Parameters
    ----------
    diff : LayerDiff
        The comparison.
    rows : int
        How many layers to keep the details of: flagged ones first, then the largest ``R``. About
        30 KB each; the page keeps fewer where they would pass 2 MB, and says how many it has.

    Returns
    -------
    IPython.display.HTML
        A sandboxed frame that can load nothing and reach nothing.
    """
    from IPython.display import HTML

    text, kept = _page(diff, rows)
    return HTML(
        f"<div><iframe title='Layer differences' sandbox='allow-scripts' width='100%'"
        f" height='{_PAGE_HEIGHT}' style='border:0' srcdoc=\"{html.escape(text)}\"></iframe>"
        f"<p>{html.escape(repr(diff))}. Without a kernel; this output holds {kept}"
        f" ({len(text) / 1e6:.1f} MB).</p></div>"
    )


def write_page(diff: ShownDiff, path: Path, rows: int = 50) -> Path:
    """Write the page of :func:`as_page` to ``path``, to be opened in any browser.

    Raises
    ------
    MigrateError
        If ``path`` cannot be written.
    """
    return write_text(path, _page(diff, rows)[0])


def _page(diff: ShownDiff, rows: int) -> tuple[str, str]:
    answers, room = {}, _PAGE_BYTES
    for i in _interesting(diff)[: max(0, rows)]:
        answer = base64.b64encode(wire.answer(diff, i, 0, _PAGE_LIMITS)).decode()
        room -= len(answer)
        if room < 0:
            break
        answers[i] = answer
    kept = f"the details of {len(answers):,} of {len(diff.rows):,} layers"
    state = {"table": table_of(diff), "selected": -1, "request": {"number": 0, "row": -1}}
    absent = f"This page holds {kept}, and not of this one. Run the notebook to see it."
    data = {"state": state, "answers": answers, "absent": absent}
    text = page("Layer differences", script(), style(), "layer_diff_page.js", data)
    return text, kept


def _interesting(diff: ShownDiff) -> list[int]:
    """Order rows by how much a reader will want to see them."""

    def dullness(i: int) -> tuple[bool, bool, float]:
        row = diff.rows[i]
        return row is not diff.first_divergence, row.verdict == "same", -_sortable(row.R)

    return sorted(range(len(diff.rows)), key=dullness)


def _sortable(value: float) -> float:
    return -math.inf if math.isnan(value) else value
