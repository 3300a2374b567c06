"""One thing a pasted text says: what it means, why, what to do, and where that was read."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from migrate_kit.tables import read_table

if TYPE_CHECKING:
    from collections.abc import Mapping

LANGUAGES = ("en", "zh")
MOST_SHOWN = 240
# Line ends, other control characters, and the marks that turn the direction of text around.
_INVISIBLE = {
    c: f"‹{c:04X}›"
    for part in (
        range(32),
        range(0x7F, 0xA0),
        range(0x200B, 0x2010),
        range(0x2028, 0x202F),
        range(0x2060, 0x206A),
        (0x61C, 0xFEFF),
    )
    for c in part
} | {9: " "}


@dataclass(frozen=True)
class Words:
    """What is said about an error, in one language."""

    meaning: str
    cause: str
    fix: str
    next_check: str


@dataclass(frozen=True)
class Answer:
    """One explanation of a text.

    Attributes
    ----------
    id : str
        The row of ``tables/errors.csv``, or the code itself.
    line : int
        The number of the matched line, counted from 1.
    text : str
        That line, cut around the match; control characters are made visible.
    meaning, cause, fix, next_check : str
        In the language of the diagnosis.
    command : str
        What can be typed as it stands; empty where there is no such thing.
    source : str
        Where the facts were read.
    role : str
        ``cause``, ``effect`` (follows from something else), ``code`` (only a number or letters),
        ``wrapper`` (says that something failed) or ``notice`` (the program went on).
    """

    id: str
    line: int
    text: str
    words: Mapping[str, Words]
    command: str
    source: str
    role: str
    language: str = "en"

    @property
    def meaning(self) -> str:
        """What the line means."""
        return self.words[self.language].meaning

    @property
    def cause(self) -> str:
        """Why it happens."""
        return self.words[self.language].cause

    @property
    def fix(self) -> str:
        """What to do."""
        return self.words[self.language].fix

    @property
    def next_check(self) -> str:
        """What to look at if that does not help."""
        return self.words[self.language].next_check

    def to_dict(self, language: str | None = None) -> dict[str, Any]:
        """Return the answer as plain values, in its own or another language."""
        words = self.words[language or self.language]
        said = {f.name: getattr(words, f.name) for f in fields(words)}
        kept = ("id", "line", "text", "command", "source", "role")
        return {key: getattr(self, key) for key in kept} | said


def words_of(row: Mapping[str, str]) -> dict[str, Words]:
    """Return the words of a table's row in each language; without Chinese the English stand in.

    A row that does not say what to look at next gets what its stage says.
    """
    stage = _stages().get(row.get("stage", ""), {})
    result = {}
    for language in LANGUAGES:
        ending = "" if language == "en" else f"_{language}"
        said = {f.name: row.get(f.name + ending) or row.get(f.name, "") for f in fields(Words)}
        if not row.get("next_check"):
            said["next_check"] = stage.get(f"next_check{ending}", "")
        result[language] = Words(**said)
    return result


@lru_cache(maxsize=1)
def _stages() -> dict[str, dict[str, str]]:
    return {row["stage"]: row for row in read_table("next_checks")}


def shown(line: str, span: tuple[int, int] | None = None, limit: int = MOST_SHOWN) -> str:
    r"""Return a line of a stranger's text fit to be shown: cut around ``span``, nothing hidden.

    Examples
    --------
    >>> shown("a\x00b")
    'a‹0000›b'
    """
    start, end = span or (0, 0)
    low = 0 if end <= limit else max(0, min(start, len(line) - limit))
    cut = line[low : low + limit]
    cut = "…" * (low > 0 and not cut.startswith("…")) + cut + "…" * (low + limit < len(line))
    return cut.strip().translate(_INVISIBLE)
