"""Lines that look like an error, for a text that no table knows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from migrate_kit.environment.answers import shown
from migrate_kit.environment.signatures import matches
from migrate_kit.environment.words import finder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from migrate_kit.environment.log_text import LogText, Window
    from migrate_kit.environment.signatures import Signature

MOST = 6
_TRIES = 200
# What such a line holds, so that only a few places of a long text are looked at.
_ERROR_WORDS = (
    "Error",
    "ERROR",
    "error:",
    "rror code",
    "Exception",
    "Traceback (most recent call last)",
    "terminate called",
    "core dumped",
    "FATAL",
    "fatal:",
    "FAILED",
    "ailed",
    "not found",
    "No such file",
    "Killed",
    "9999:",
    "错误",
    "报错",
    "失败",
    "异常",
)
_WORDS = tuple(word.encode() for word in _ERROR_WORDS)
# The name of an exception before a colon or at the end; a level; a code; a word of failure.
_LIKE = re.compile(
    r"(?<![\w.])(?:\w{1,40}\.){0,6}\w{0,60}(?:Error|Exception|Interrupt|Exit)\b(?=:|：|$)"
    r"|\[ERROR\]|(?<!\w)ERROR(?:\]|:|：| )|(?i:(?<![\w-])(?:fatal )?error(?: code)?[:：])"
    r"|(?<!\w)E[0-9A-Z]\d{4}[:：]|terminate called|core dumped|(?<!\w)(?:FATAL|fatal:|FAILED)"
    r"|(?<!\w)(?:[Ff]ailed to|not found$|No such file or directory)|failed[,.:]|^Killed$"
    r"|错误[:：码]|报错|失败|异常",
    re.ASCII,
)
_TRACEBACK = "Traceback (most recent call last)"


@dataclass(frozen=True)
class Suspect:
    """A line that looks like an error: its number and its text."""

    line: int
    text: str


def suspects(
    text: LogText, benign: Sequence[Signature] = (), known: frozenset[int] = frozenset()
) -> list[Suspect]:
    """Return the first lines that look like an error, in the order of the text.

    Parameters
    ----------
    text : LogText
        The text.
    benign : sequence of Signature
        Rows whose lines are known to do no harm.
    known : frozenset of int
        Where lines begin that are explained already.
    """
    found: dict[int, str] = {}
    tried = dict.fromkeys(_WORDS, 0)
    window = None
    for at, word in finder(_WORDS).find(text.data):
        if window is not None and window.start <= at < window.end:
            continue  # seen with another word of this line
        tried[word] += 1
        if tried[word] > _TRIES or len(found) >= MOST:
            break
        window = text.window(at)
        line = _error_line(text, window)
        if line and line[0] not in known and not matches(line[1], benign):
            found.setdefault(*line)
    return [Suspect(text.line_number(at), found[at]) for at in sorted(found)]


def _error_line(text: LogText, window: Window) -> tuple[int, str] | None:
    if _TRACEBACK in window.text:
        # The error of a traceback is the first line after it that is not indented.
        limit = window.end + (1 << 16)
        end = text.data.find(b"\nTraceback", window.end, limit)
        return _last_line(text, window.end, end if end >= 0 else limit)
    match = _LIKE.search(window.text)
    return (window.start, shown(window.text, match.span())) if match else None


def _last_line(text: LogText, start: int, end: int) -> tuple[int, str] | None:
    for match in re.finditer(rb"^(?![ \t\r\n]|File )[^\n]", text.data[start:end], re.MULTILINE):
        window = text.window(start + match.start())
        if start < window.start:
            return window.start, shown(window.text)
    return None
