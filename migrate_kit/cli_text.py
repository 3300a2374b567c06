"""Rows and findings as lines for a terminal."""

from __future__ import annotations

import itertools
import math
import re
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING

from migrate_kit.results import number, plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from migrate_kit.checkpoints.load_rows import LoadRow
    from migrate_kit.checkpoints.state import Entry
    from migrate_kit.dtypes.op_rows import OpRow
    from migrate_kit.environment.diagnosis import Diagnosis
    from migrate_kit.layers.rows import LayerRow
    from migrate_kit.results import Finding


def row_table(rows: Iterable[LayerRow]) -> list[str]:
    """Return a header and one line a layer; columns that say nothing are left out."""
    head = ("layer", "channel", "verdict", "R", "max abs", "origin", "note")
    cells = [
        (
            plain(row.layer or row.candidate),
            row.channel,
            row.verdict,
            _number(row.R),
            _number(row.max_abs),
            row.origin,
            plain(row.note),
        )
        for row in rows
    ]
    if not cells:
        return []
    columns = [(h, *c) for h, *c in zip(head, *cells, strict=True) if any(c)]
    return _aligned(list(zip(*columns, strict=True)))


def operator_table(rows: Iterable[OpRow]) -> list[str]:
    """Return a header and one line an operator, dtypes and line of code."""
    head = ("operator", "dtypes", "status", "calls", "where")
    cells = [
        (
            plain(r.op) + (" (backward)" if r.backward else ""),
            _runs(r.dtypes),
            r.status,
            str(r.count),
            plain(r.where or r.module),
        )
        for r in rows
    ]
    return _aligned([head, *cells])


def _runs(dtypes: str) -> str:
    """Say a dtype once where several tensors in a row have it."""
    counted = [(d, len(list(same))) for d, same in itertools.groupby(dtypes.split())]
    return " ".join(d if n == 1 else f"{n}x{d}" for d, n in counted)


def folded(lines: Iterable[str]) -> list[str]:
    """Return lines for standard output: folded between words where that is a terminal.

    In a pipe a line stays whole, for whoever searches it. A minus is one that can be typed.
    """
    typed = [line.replace("\N{MINUS SIGN}", "-") for line in lines]
    if not sys.stdout.isatty():
        return typed
    width = max(40, shutil.get_terminal_size().columns)
    fold = textwrap.TextWrapper(
        width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
    return [part for line in typed for part in fold.wrap(line) or [""]]


def tensor_table(entries: Iterable[tuple[str, Entry]]) -> list[str]:
    """Return a header and one line a tensor."""
    cells = [(plain(n), str(e.shape), str(e.dtype).removeprefix("torch.")) for n, e in entries]
    return _aligned([("name", "shape", "dtype"), *cells]) if cells else []


def pairing_table(rows: Iterable[LoadRow]) -> list[str]:
    """Return a header and one line a place of the model, or a tensor without one."""
    cells = [(r.status, plain(r.key or "-"), plain(r.source or "-"), plain(r.reason)) for r in rows]
    return _aligned([("status", "model", "checkpoint", "why"), *cells]) if cells else []


def finding_lines(findings: Iterable[Finding]) -> list[str]:
    """Return what was found, one finding a line: ``level: what (where) -> what to do``."""
    return [
        plain(
            f"{f.level}: {f.what}"
            + (f" ({f.where})" if f.where else "")
            + (f" -> {f.fix}" if f.fix else "")
        )
        for f in findings
    ]


# What is said to whoever calls the package, and how the command line says it.
_PYTHON = (
    (re.compile(r'(?:mk\.|report\.)?repair\((\w+)="(\w+)", (\w+)="(\w+)"\)'), r"--\1 \2 --\3 \4"),
    (re.compile(r'(?:mk\.|report\.)?repair\((\w+)="(\w+)"\)'), r"--\1 \2"),
    (re.compile(r"take another with checkpoint\.parts\[name\]"), "take another with --part NAME"),
    (re.compile(r"mk\.convert_weights\('(\w+)', weights, out, cfg=\.\.\.\)"),
     r"migrate-kit convert \1 WEIGHTS --out OUT --cfg CFG"),
    (re.compile(r"\b(head|positions|missing|order|cfg|out|format)=\B"), r"--\1"),
    (re.compile(r'\b(head|positions|missing|order)="(\w+)"'), r"--\1 \2"),
    (re.compile(r"\bpaths="), "the files"),
    (re.compile(r"(?<![\w.])repair\(\) does"), "--out FILE writes what does"),
    (re.compile(r"(?<![\w.])repair\(\)"), "--out"),
    (re.compile(r"(?<![\w.])convert_weights\(\)"), "the network's name"),
)  # fmt: skip


def spoken(text: str) -> str:
    """Return advice for Python as advice for the command line.

    Examples
    --------
    >>> spoken('the heads differ: repair(head="keep")')
    'the heads differ: --head keep'
    """
    for pattern, own in _PYTHON:
        text = pattern.sub(own, text)
    return text


def answer_lines(found: Diagnosis) -> list[str]:
    """Return the root cause with its fix, the other answers, harmless lines and suspects."""
    return [*found.lines(), *finding_lines(found.notes)]


def one_line(text: object) -> str:
    """Return a text, as of an error, on one line."""
    return plain(" ".join(str(text).split()))


def _aligned(lines: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def _number(value: float) -> str:
    return "-" if math.isnan(value) else number(value).replace("\N{MINUS SIGN}", "-")
