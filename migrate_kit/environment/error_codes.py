"""Numbers and letters that CANN and its tools print instead of a sentence."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from migrate_kit.environment.signatures import MOST_TRIES
from migrate_kit.environment.words import finder
from migrate_kit.tables import read_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from migrate_kit.environment.log_text import LogText

_LETTERED = re.compile(rb"(?<![\w.\-/])[EW][0-9A-Z]\d{4}(?![\w.\-/])")
# Before a number: "error code is", "errcode: [", "retCode=", "ret:", "result =", "error: ".
_NAMED = re.compile(rb"(?:code(?: is)?|ret|result|errno|error)[^\w\n]{0,4}$", re.IGNORECASE)
_CLOSED = re.compile(rb"[)\]]?\s{0,2}(?::|\xef\xbc\x9a)|[)\]]")
_REACH = 24


@dataclass(frozen=True)
class CodeHit:
    """A code where it is meant as one: its row, and the byte at which it stands."""

    code: str
    at: int
    row: Mapping[str, str]


@lru_cache(maxsize=1)
def code_rows() -> dict[str, dict[str, str]]:
    """Return what each code means, the more exact table last.

    Examples
    --------
    >>> code_rows()["507011"]["meaning"]
    'model execution failed'
    """
    kinds = {row["kind"]: row for row in read_table("cann_kinds")}
    rows = {}
    for row in read_table("cann_codes"):
        kind = kinds[row["kind"]]
        rows[row["code"]] = kind | {
            "code": row["code"],
            "meaning": f"{row['owner']}: {row['title'] or kind['meaning']}",
            "meaning_zh": f"{row['owner_zh']}：{kind['meaning_zh']}",
            "source": row["source"],
        }
    for table in ("acl_codes", "atc_codes"):
        rows |= {row["code"]: row for row in read_table(table)}
    return rows


def search_codes(text: LogText) -> list[CodeHit]:
    """Return where each code of the tables stands first, in a place where it means one.

    A number counts after a word such as ``error code is`` or ``ret=`` only, a lettered code where
    a colon or a bracket follows or such a word stands before it: part numbers, sizes and times of
    the same digits are none.
    """
    rows = code_rows()
    found: dict[str, CodeHit] = {}
    for code, at in _lettered(text.data):
        if code in rows and code not in found:
            found[code] = CodeHit(code, at, rows[code])
    for code, at in _numbered(text.data, tuple(c.encode() for c in rows if c.isdigit())):
        if code not in found:
            found[code] = CodeHit(code, at, rows[code])
    return sorted(found.values(), key=lambda hit: hit.at)


def _lettered(data: bytes) -> Iterator[tuple[str, int]]:
    for n, match in enumerate(_LETTERED.finditer(data)):
        if n > MOST_TRIES * 4:
            return
        start, end = match.span()
        if _CLOSED.match(data, end, end + _REACH) or _named(data, start):
            yield match[0].decode(), start


def _named(data: bytes, at: int) -> bool:
    return _NAMED.search(data[max(0, at - _REACH) : at]) is not None


def _numbered(data: bytes, codes: tuple[bytes, ...]) -> Iterator[tuple[str, int]]:
    tried = dict.fromkeys(codes, 0)
    for at, code in finder(codes).find(data):
        tried[code] += 1
        if tried[code] > MOST_TRIES:
            continue
        end = at + len(code)
        if not data[end : end + 1].isdigit() and _named(data, at):
            yield code.decode(), at
