"""Whatever a reader pastes, as one bounded run of UTF-8 lines whose numbers are still his own."""

from __future__ import annotations

import codecs
import contextlib
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from migrate_kit.environment.log_file import LogFile
from migrate_kit.errors import MigrateError
from migrate_kit.results import Finding

if TYPE_CHECKING:
    from collections.abc import Sequence

# What is read of a longer text: its beginning, its end, and what lies around the first error that
# stands between the two.
HEAD, MIDDLE, TAIL = 20 << 20, 6 << 20, 6 << 20
MOST = HEAD + MIDDLE + TAIL
# How far a line is looked at on either side of a word in it.
BEFORE, AFTER = 600, 1400

_TROUBLE = ("Traceback (most recent call last)", "[ERROR]", "rror:")
_SNIFF = 1 << 16
# Colours and window titles; each part bounded, so that a text full of escapes costs no more.
_ESCAPE = re.compile(
    rb"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]|\][^\x07\x1b\n]{0,400}(?:\x07|\x1b\\)|[@-Z\\-_])"
    rb"|\\u001b\[[0-9;]{0,32}m"
)
# What web pages and word processors put in place of plain quotes and blanks.
_TYPOGRAPHY = (
    (b"\xc2\xa0", b" "),
    (b"\xe2\x80\x98", b"'"),
    (b"\xe2\x80\x99", b"'"),
    (b"\xe2\x80\x9c", b'"'),
    (b"\xe2\x80\x9d", b'"'),
)
_CONTROL = bytes({*range(9), *range(14, 32)} - {27})


class Sliceable(Protocol):
    """Text, bytes or a file: what can be cut without reading all of it."""

    def __len__(self) -> int: ...
    def __getitem__(self, part: slice, /) -> Any: ...
    def find(self, wanted: Any, start: int, end: int, /) -> int:
        """Return where ``wanted`` begins, or -1."""

    def count(self, wanted: Any, start: int, end: int, /) -> int:
        """Return how often ``wanted`` stands there."""


@dataclass(frozen=True)
class Window:
    """A part of one line: where it begins and ends, and its text.

    An ellipsis stands where the line goes on, so that ``^`` and ``$`` mean the line's own ends.
    """

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class LogText:
    """A text ready to be searched.

    Attributes
    ----------
    data : bytes
        UTF-8, lines ended by a line feed, without colours.
    starts : sequence of (int, int)
        Where each part that was read begins in ``data``, and the number of its first line.
    notes : sequence of Finding
        What was left out or had to be guessed.
    """

    data: bytes
    starts: Sequence[tuple[int, int]] = ((0, 1),)
    notes: Sequence[Finding] = field(default=())

    def line_number(self, at: int) -> int:
        """Return the number of the line that holds byte ``at``, counted from 1."""
        start, line = max(s for s in self.starts if s[0] <= at)
        return line + self.data.count(b"\n", start, at)

    def window(self, at: int) -> Window:
        """Return the line around byte ``at``, or the part of it within reach."""
        low, high = max(0, at - BEFORE), min(len(self.data), at + AFTER)
        start = max(self.data.rfind(b"\n", low, at), self.data.rfind(b"\r", low, at)) + 1
        # A carriage return parts what a progress bar wrote over itself.
        ends = [e for e in (self.data.find(c, at, high) for c in (b"\n", b"\r")) if e >= 0]
        end = min(ends, default=high)
        cut_left, cut_right = start == 0 and low > 0, not ends and high < len(self.data)
        start = low if cut_left else start
        text = self.data[start:end].decode("utf-8", "ignore")
        return Window(start, end, "…" * cut_left + text + "…" * cut_right)


def read_log(source: object) -> LogText:
    r"""Return a text, bytes of any usual encoding, or a file, ready to be searched.

    Parameters
    ----------
    source : str, bytes or pathlib.Path
        A str is always the text itself, a Path always a file.

    Raises
    ------
    MigrateError
        If it is of another type, or the file cannot be read.

    Examples
    --------
    >>> log = read_log(b"\x1b[31mRuntimeError: no\x1b[0m\r\nsecond line")
    >>> log.data
    b'RuntimeError: no\nsecond line'
    >>> log.line_number(log.data.index(b"second"))
    2
    """
    if isinstance(source, str):
        return _prepare(source, "utf-8")
    if isinstance(source, bytes | bytearray | memoryview):
        held = bytes(source)
        return _prepare(held, _encoding(held[:_SNIFF]))
    if isinstance(source, Path):
        with contextlib.closing(LogFile(source)) as file:
            if not len(file):
                return read_log(file.unsized())
            return _prepare(file, _encoding(file[0:_SNIFF]))
    raise MigrateError(
        f"cannot explain a {type(source).__name__}",
        "text=",
        "give the message as a str or bytes, or a pathlib.Path to a log file",
    )


def _prepare(source: Sliceable, encoding: str) -> LogText:
    is_text = isinstance(source, str)
    newline: Any = "\n" if is_text else _newline(encoding)
    data, starts, line, at, notes = b"", [], 1, 0, []
    parts = _parts(source, encoding)
    for low, high in parts:
        line += source.count(newline, at, low)
        piece = _plain(source[low:high], encoding)
        if data and not data.endswith(b"\n"):
            data += b"\n"
        starts.append((len(data), line))
        data += piece
        line, at = line + source.count(newline, low, high), high
    if len(parts) > 1:
        notes.append(_left_out(parts, len(source), "characters" if is_text else "bytes"))
    if not data.strip():
        notes.append(Finding("info", "there is no text to explain", "", "paste the message"))
    elif not _is_text(data[:_SNIFF]):
        notes.append(
            Finding("warning", "this is not text, so nothing was searched", "", "paste the message")
        )
        return LogText(b"", notes=notes)
    return LogText(data, starts or ((0, 1),), notes)


def _left_out(parts: list[tuple[int, int]], size: int, unit: str) -> Finding:
    read = sum(high - low for low, high in parts)
    return Finding(
        "info",
        f"read {read / 1e6:.0f} of {size / 1e6:.0f} million {unit}: the beginning, the end"
        + (", and what stands around the first error between them" if len(parts) > 2 else ""),
        "",
        "if the answer is not among them, cut the log around the first failure",
    )


def _parts(source: Sliceable, encoding: str) -> list[tuple[int, int]]:
    """Return which parts are read, as (start, end); they do not touch."""
    size = len(source)
    if size <= MOST:
        return [(0, size)]
    parts = [(0, HEAD), (size - TAIL - size % 2, size)]
    wide = encoding.startswith("utf-16")
    found = []
    for word in _TROUBLE:
        wanted: Any = word if isinstance(source, str) else word.encode(encoding)
        at = source.find(wanted, HEAD, size - TAIL)
        found += [at] if at >= 0 else []
    if found:
        low = max(HEAD, min(found) - (MIDDLE >> 3))
        low -= low % 2 if wide else 0
        parts.insert(1, (low, min(low + MIDDLE, parts[1][0])))
    return parts


def _newline(encoding: str) -> bytes:
    return "\n".encode(encoding)


def _encoding(head: bytes) -> str:
    for mark, name in (
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
    ):
        if head.startswith(mark):
            return name
    # Latin letters of UTF-16 have a zero on one side of each.
    odd, even = head[1::2].count(0), head[::2].count(0)
    if len(head) > 3 and max(odd, even) * 5 > len(head) and min(odd, even) * 20 < len(head):
        return "utf-16-le" if odd > even else "utf-16-be"
    # A character may be cut at the end of what is looked at.
    utf8, gbk = (codecs.getincrementaldecoder(n)("replace") for n in ("utf-8", "gb18030"))
    if utf8.decode(head).count("\ufffd") <= gbk.decode(head).count("\ufffd"):
        return "utf-8"
    return "gb18030"


def _plain(piece: str | bytes, encoding: str) -> bytes:
    """Return one part as UTF-8 without what only a terminal or a web page needs."""
    if isinstance(piece, str):
        data = piece.encode("utf-8", "replace")
    elif encoding == "utf-8":
        data = piece
    else:
        data = piece.decode(encoding, "replace").encode("utf-8", "replace")
    data = data.removeprefix(codecs.BOM_UTF8).replace(b"\r\n", b"\n")
    if b"\r" in data and b"\n" not in data:
        data = data.replace(b"\r", b"\n")
    if b"\x1b" in data or b"u001b[" in data:
        data = _without_escapes(data)
    for fancy, plain in _TYPOGRAPHY:
        data = data.replace(fancy, plain)
    return data


def _without_escapes(data: bytes) -> bytes:
    # Not re.sub: it keeps 100 bytes of its own for each of what may be 15 million escapes.
    kept, at = bytearray(), 0
    for match in _ESCAPE.finditer(data):
        kept += data[at : match.start()]
        at = match.end()
    return bytes(kept + data[at:])


def _is_text(head: bytes) -> bool:
    return len(head) - len(head.translate(None, _CONTROL)) <= len(head) // 32
