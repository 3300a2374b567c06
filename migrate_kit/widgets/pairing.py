"""The live view of a diagnosis: a model's names beside a checkpoint's, one line a pairing."""

from __future__ import annotations

import html
import json
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import traitlets

from migrate_kit.files import write_text
from migrate_kit.widgets.view import View, joined, page
from migrate_kit.widgets.wire import MAX_NAME, shorten

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from IPython.display import HTML

    from migrate_kit.results import Finding

# In the order in which they use each other.
_SCRIPTS = (
    "text.js",
    "clipboard.js",
    "list_keys.js",
    "pairing_text.js",
    "pairing_rows.js",
    "pairing_list.js",
    "pairing.js",
)
_WORDS = ("shape", "source_shape", "dtype", "source_dtype", "status", "rule", "reason")
_MOST_FINDINGS = 20
# What a browser still takes in at once; a page travels as base64, inside an attribute.
_MOST_BYTES, _PAGE_BYTES = 8_000_000, 1_300_000
_PAGE_HEIGHT = 680
# Of a row beyond its texts: commas and an index for each column of words.
_ROW_BYTES = 40
_SAME_NAME = "same name"
_AND = " + "


class ShownRow(Protocol):
    """One pairing; what is on one side only has no shape on the other."""

    @property
    def key(self) -> str | None:
        """The model's name; None or empty for what goes nowhere."""

    @property
    def shape(self) -> Sequence[int] | None:
        """The model's shape."""

    @property
    def dtype(self) -> str | None:
        """The model's dtype."""

    @property
    def source(self) -> str | None:
        """The checkpoint's name; several are joined by `` + ``."""

    @property
    def source_shape(self) -> Sequence[int] | None:
        """The checkpoint's shape."""

    @property
    def source_dtype(self) -> str | None:
        """The checkpoint's dtype."""

    @property
    def status(self) -> str:
        """Such as ``renamed``."""

    @property
    def rule(self) -> str:
        """What paired them."""

    @property
    def reason(self) -> str:
        """Why, in a sentence."""


class ShownReport(Protocol):
    """A diagnosis as the view needs it."""

    @property
    def rows(self) -> Sequence[ShownRow]:
        """One line a pairing."""

    @property
    def findings(self) -> Sequence[Finding]:
        """What it has to say besides."""

    def _repr_html_(self) -> str: ...


def script() -> str:
    """Return the widget's JavaScript as one module."""
    return joined(*_SCRIPTS)


def style() -> str:
    """Return the widget's style sheet."""
    return joined("theme.css", "pairing.css")


class PairingWidget(View):
    """Show which of a checkpoint's tensors goes where in a model, and what goes nowhere.

    Parameters
    ----------
    report : LoadReport
        The diagnosis. All of it is sent at once: the view needs no kernel to be read.

    Attributes
    ----------
    selected : int
        The row that is marked, -1 for none; can be set.
    """

    _esm: ClassVar[str] = script()
    _css: ClassVar[str] = style()

    table = traitlets.Unicode("").tag(sync=True)
    selected = traitlets.Int(-1).tag(sync=True)

    def __init__(self, report: ShownReport) -> None:
        self._report = report
        super().__init__(table=table_of(report))

    def __repr__(self) -> str:
        # anywidget's own holds a memory address, which no two runs of a notebook share.
        return repr(self._report)

    def _static_html(self) -> str:
        return self._report._repr_html_()


def table_of(report: ShownReport, most_bytes: int = _MOST_BYTES) -> str:
    """Return the rows as JSON columns: names as they are, words once with an index a row.

    A checkpoint's name that is the model's is 0. Where ``most_bytes`` do not hold every row, those
    that bear the same name on both sides are left out first; ``rows`` then says which are kept.
    """
    kept = _kept(report.rows, most_bytes)
    rows = [report.rows[i] for i in kept]
    columns: dict[str, Any] = {
        "key": [_name(_key(r)) for r in rows],
        "source": [0 if _is_same(r) else _name(r.source) for r in rows],
    }
    for key in _WORDS:
        columns[key] = _words(_text(getattr(r, key)) for r in rows)
    findings = [
        [shorten(str(t)) for t in (f.level, f.what, f.where, f.fix)]
        for f in report.findings[:_MOST_FINDINGS]
    ]
    table = {
        "count": len(rows),
        "total": len(report.rows),
        "rows": kept if len(kept) < len(report.rows) else None,
        "keys": len({_key(r) for r in report.rows} - {None}),
        "sources": len({s for r in report.rows for s in _sources(r)}),
        # Names that are not whole here must not be copied into a program.
        "cut": [i for i, r in enumerate(rows) if _longest(r) > MAX_NAME],
        "columns": columns,
        "findings": findings,
        "more": len(report.findings) - len(findings),
    }
    # In ASCII: half a surrogate pair in a stranger's name would not get through the wire.
    return json.dumps(table, separators=(",", ":"), allow_nan=False)


def _kept(rows: Sequence[ShownRow], room: int) -> list[int]:
    """Return the rows that there is room for, in their order."""
    seen: set[str] = set()
    kept = []
    for i in sorted(range(len(rows)), key=lambda i: rows[i].status == _SAME_NAME):
        row = rows[i]
        texts = {_text(getattr(row, key)) for key in _WORDS} - seen
        seen |= texts
        names = {_name(_key(row)) or "", _name(row.source) or ""}
        room -= _ROW_BYTES + sum(len(json.dumps(t)) for t in (*names, *texts))
        if room < 0:
            break
        kept.append(i)
    return sorted(kept)


def _key(row: ShownRow) -> str | None:
    # No parameter has an empty name; a tensor that goes nowhere may have one instead of None.
    return row.key or (None if row.shape is None else row.key)


def _is_same(row: ShownRow) -> bool:
    return row.source is not None and row.source == _key(row)


def _sources(row: ShownRow) -> list[str]:
    return [] if row.source is None else row.source.split(_AND)


def _longest(row: ShownRow) -> int:
    return max(len(row.key or ""), len(row.source or ""))


def _name(name: str | None) -> str | None:
    return None if name is None else shorten(str(name))


def _text(value: str | Sequence[int] | None) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return shorten(value.removeprefix("torch."))
    return shorten("×".join(map(str, value)), 100) or "scalar"


def _words(values: Iterable[str]) -> dict[str, list[Any]]:
    places: dict[str, int] = {}
    at = [places.setdefault(v, len(places)) for v in values]
    return {"words": list(places), "at": at}


def as_page(report: ShownReport) -> HTML:
    """Return the same view as one self-contained output: no widget manager, no kernel.

    A page holds about 1.3 MB of rows; it says so where that is not all.

    Returns
    -------
    IPython.display.HTML
        A sandboxed frame that can load nothing and reach nothing.
    """
    from IPython.display import HTML

    return HTML(
        "<div><iframe title='Model and checkpoint' sandbox='allow-scripts' allow='clipboard-write'"
        f" width='100%' height='{_PAGE_HEIGHT}' style='border:0'"
        f' srcdoc="{html.escape(_page(report))}"></iframe><p>{html.escape(repr(report))}</p></div>'
    )


def write_page(report: ShownReport, path: Path) -> Path:
    """Write the page of :func:`as_page` to ``path``, to be opened in any browser.

    Raises
    ------
    MigrateError
        If ``path`` cannot be written.
    """
    return write_text(path, _page(report))


def _page(report: ShownReport) -> str:
    state = {"table": table_of(report, _PAGE_BYTES), "selected": -1}
    # A page asks nothing, as the checklist's does not.
    return page("Model and checkpoint", script(), style(), "environment_page.js", state)
