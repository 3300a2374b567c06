"""What an error looks like: the rows of a table, and where they match in a text.

A row is tried only where one of its plain words stands, so that a long log is passed over once for
each word and a regular expression sees one short line at a time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from migrate_kit.environment.words import finder
from migrate_kit.tables import read_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from migrate_kit.environment.log_text import LogText, Window

BETWEEN_WORDS = " || "
ROLES = ("cause", "effect", "code", "wrapper", "notice")
# Lines that hold a word of a row without being what the row means: after so many, the rest of the
# text is taken to be alike.
MOST_TRIES, MOST_TRIES_IN_ALL = 3000, 60_000
# A match in a warning may be followed by one in an error, which is then what counts.
MOST_MATCHES = 4
# How far from a match the text that a row wants beside it may stand, in bytes.
_BEFORE, _AFTER = 400, 2000
_WARNING = re.compile(r"(?i:warn)|\[W\b")


@dataclass(frozen=True)
class Signature:
    """One row of errors.csv or benign.csv.

    Attributes
    ----------
    words : tuple of bytes
        Whatever the expression matches holds at least one of them.
    row : dict
        The row itself.
    """

    id: str
    words: tuple[bytes, ...]
    row: dict[str, str]

    @cached_property
    def regex(self) -> re.Pattern[str]:
        """The compiled expression; ASCII, so that a Chinese letter ends a word."""
        return re.compile(self.row["regex"], re.ASCII)

    @cached_property
    def near(self) -> re.Pattern[bytes] | None:
        """What must stand near a match, where the line alone says too little."""
        wanted = self.row.get("near", "")
        return re.compile(wanted.encode(), re.ASCII) if wanted else None

    @property
    def role(self) -> str:
        """How the row ranks: one of :data:`ROLES`."""
        return self.row.get("role", "notice")

    @property
    def priority(self) -> int:
        """Which of two rows of one role that match the same line is the more exact."""
        return int(self.row.get("priority", "0"))


@dataclass(frozen=True)
class Hit:
    """Where a row matched.

    Attributes
    ----------
    start : int
        The byte of the text at which its line begins.
    line : str
        That line, or the part of it within reach.
    span : (int, int)
        Where in ``line`` the match stands.
    group : str
        The first group of the expression, or what it matched as a whole.
    warns : bool
        Whether the line says that it only warns.
    """

    signature: Signature
    start: int
    line: str
    span: tuple[int, int]
    group: str
    warns: bool


@lru_cache(maxsize=4)
def signatures(table: str) -> tuple[Signature, ...]:
    """Return the rows of one table.

    Examples
    --------
    >>> {s.id: s.words for s in signatures("errors")}["IMP14"]
    (b"No module named '",)
    """
    return tuple(
        Signature(row["id"], tuple(w.encode() for w in row["find"].split(BETWEEN_WORDS)), row)
        for row in read_table(table)
    )


def search(
    text: LogText,
    wanted: Sequence[Signature],
    but: Sequence[Signature] = (),
    tries: int = MOST_TRIES_IN_ALL,
) -> tuple[list[Hit], bool]:
    """Return where each row matches first, and whether all of the text was tried.

    Of one row's matches the first that does not merely warn is taken, else the first.

    Parameters
    ----------
    text : LogText
        The text.
    wanted : sequence of Signature
        The rows to look for.
    but : sequence of Signature
        Rows whose lines do not count.
    tries : int
        How many lines are looked at altogether.
    """
    by_word: dict[bytes, list[Signature]] = {}
    for signature in wanted:
        for word in signature.words:
            by_word.setdefault(word, []).append(signature)
    found: dict[str, list[Hit]] = {}
    tried = dict.fromkeys(by_word, 0)
    complete, window, seen = True, None, set[bytes]()
    for at, word in finder(tuple(by_word)).find(text.data):
        rows = by_word[word]
        if not rows:
            continue
        if window is None or not window.start <= at < window.end:
            window, seen = text.window(at), set()
        if word in seen:
            continue
        seen.add(word)
        tried[word] += 1
        tries -= 1
        if tried[word] > MOST_TRIES or tries < 0:
            complete, by_word[word] = False, []
            continue
        for signature in rows:
            hit = _match(signature, window, text.data)
            if hit is not None and (signature in but or not matches(window.text, but)):
                found.setdefault(signature.id, []).append(hit)
        by_word[word] = [r for r in rows if not _settled(found.get(r.id, ()))]
    return [min(hits, key=_first) for hits in found.values()], complete


def matches(line: str, rows: Iterable[Signature]) -> bool:
    """Return whether a line is one that any of the rows describes."""
    return any(row.regex.search(line) for row in rows)


def _first(hit: Hit) -> tuple[bool, int]:
    return hit.warns, hit.start


def _settled(hits: Iterable[Hit]) -> bool:
    hits = list(hits)
    return len(hits) >= MOST_MATCHES or any(not h.warns for h in hits)


def _match(signature: Signature, window: Window, data: bytes) -> Hit | None:
    match = signature.regex.search(window.text)
    if match is None or not _beside(signature, window, data):
        return None
    group = next((g for g in match.groups() if g), match[0])
    warns = _WARNING.search(window.text[: match.start() + 1]) is not None
    return Hit(signature, window.start, window.text, match.span(), group, warns)


def _beside(signature: Signature, window: Window, data: bytes) -> bool:
    if signature.near is None:
        return True
    low, high = max(0, window.start - _BEFORE), window.end + _AFTER
    return signature.near.search(data, low, high) is not None
