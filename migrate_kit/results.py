"""What every result has in common: findings, a table, static HTML and a live view."""

from __future__ import annotations

import html
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pandas as pd

Level = Literal["error", "warning", "info"]


@dataclass(frozen=True)
class Finding:
    """One thing a result has to say: how grave, what, where, and what to do about it."""

    level: Level
    what: str
    where: str = ""
    fix: str = ""


class ResultKeeper(Protocol):
    """What :meth:`Result.save` needs of a project."""

    def keep(self, result: Result, name: str | None = None) -> Any:
        """Add ``result`` to the project's results."""


class Result:
    """Base of every result object; see DESIGN section 4.

    A subclass sets ``findings``, implements :meth:`to_frame` and ``__repr__`` (one line, the
    problem first) and may override :meth:`_html`. It never prints.
    """

    kind: str = "result"
    findings: list[Finding]

    @property
    def ok(self) -> bool:
        """Whether nothing of level ``error`` was found."""
        return not any(f.level == "error" for f in self.findings)

    def to_frame(self) -> pd.DataFrame:
        """Return the result as a table."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """Return what a project keeps of this result: plain JSON values only."""
        return {
            "kind": self.kind,
            "ok": self.ok,
            "summary": repr(self),
            "findings": [vars(f) for f in self.findings],
        }

    def save(self, project: ResultKeeper, name: str | None = None) -> Any:
        """Add this result to ``project.results`` under ``name`` (default: its kind).

        A result of the same name is replaced. What is kept is a JSON file in the project's folder
        ``migrate_kit_results``.
        """
        return project.keep(self, name)

    def show(self) -> Any:
        """Return the live view; a result without one shows its static HTML."""
        from IPython.display import HTML

        return HTML(self._repr_html_())

    def _repr_html_(self) -> str:
        return self._html()

    def _html(self) -> str:
        return f"<p>{html.escape(repr(self))}</p>" + findings_html(self.findings)


def number(value: float) -> str:
    """Format a measurement with three digits; an unknown one is a dash."""
    if math.isnan(value):
        return "–"
    if 1e-2 <= abs(value) < 1e4 or value == 0 or math.isinf(value):
        text = f"{value:.3g}"
        return f"{float(text):.0f}" if "e" in text else text  # 1170, not 1.17e+03
    mantissa, exponent = f"{value:.2e}".split("e")
    # A minus sign: a table breaks a line at a hyphen.
    return f"{mantissa}e{int(exponent)}".replace("-", "−")


def findings_html(findings: Sequence[Finding]) -> str:
    """Render findings as a list; every text is escaped."""
    if not findings:
        return ""
    items = []
    for f in findings:
        where = f" <em>({html.escape(f.where)})</em>" if f.where else ""
        fix = f"<br>&rarr; {html.escape(f.fix)}" if f.fix else ""
        items.append(f"<li><b>{f.level}</b>: {html.escape(f.what)}{where}{fix}</li>")
    return f"<ul>{''.join(items)}</ul>"


def plain(text: str) -> str:
    """Return a stranger's text on one line and without terminal control."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun.

    Examples
    --------
    >>> counted(1, "tensor"), counted(2000, "tensor")
    ('1 tensor', '2,000 tensors')
    """
    return f"{number:,} {noun}{'s' * (number != 1)}"


def few(names: Iterable[object], most: int = 3) -> str:
    """Return the first of a stranger's names and how many more there are, fit to be printed.

    Examples
    --------
    >>> few(["conv1", "bn1", "conv2"], 2)
    'conv1, bn1 and 1 more'
    """
    listed = [plain(str(name))[:80] for name in names]
    shown = ", ".join(listed[:most])
    return f"{shown} and {len(listed) - most} more" if len(listed) > most else shown or "nothing"


# An attribute of a cell of text.
LEFT = ' style="text-align:left"'


def _is_number(text: str) -> bool:
    return not text.strip("+-−–.,0123456789e%×x ") or text in ("nan", "inf", "-inf")


def table_html(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Render a plain table that survives GitHub's sanitiser; every cell is escaped.

    No ``<style>``, ``class`` or ``id``: GitHub and an untrusted JupyterLab take them away. Columns
    of text are aligned to the left, which JupyterLab does not do by itself.
    """
    lines = [[str(c) for c in row] for row in rows]
    columns = zip(*lines, strict=True) if lines else [()] * len(head)
    sides = ["" if all(map(_is_number, c)) else LEFT for c in columns]
    ths = "".join(
        f'<th scope="col"{side}>{html.escape(h)}</th>' for h, side in zip(head, sides, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(f"<td{s}>{html.escape(c)}</td>" for c, s in zip(row, sides, strict=True))
        + "</tr>"
        for row in lines
    )
    return (
        f"<table><caption>{html.escape(caption)}</caption>"
        f"<thead><tr>{ths}</tr></thead><tbody>{body}</tbody></table>"
    )
