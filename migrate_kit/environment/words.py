"""Find any of many words in a long text in one pass."""

from __future__ import annotations

import heapq
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

# How common a byte is in logs, in thousandths; what is not named is rare. The search engine skips
# quickly over bytes that no word begins with, so each word is looked for from its rarest byte on.
_COMMON = {
    **dict(zip(b"etaoinshrdlcumwfgypbvkjxqz", (
        90, 65, 60, 55, 50, 50, 45, 35, 45, 35, 35, 30, 22, 20, 13, 16, 15, 12, 18, 11, 8, 6,
        1, 2, 1, 1,
    ), strict=True)),
    **dict.fromkeys(b"0123456789", 30),
    **dict.fromkeys(b":.,-_/=", 20),
    ord(" "): 150,
}  # fmt: skip
_RARE = 4
# Fewer bytes than this would stand in too many places.
_LEAST = 5
# Return codes. They are found as runs of six digits: a log is full of digits to begin a word with.
_DIGITS = 6
_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)
_RUN = re.compile(b"0" * _DIGITS + b"0*")


class WordFinder:
    """One regular expression for many words, shaped as a tree, and what each hit may be.

    A word of six digits counts only where no other digit stands beside it.

    Examples
    --------
    >>> finder = WordFinder((b"undefined symbol", b"symbol: hal"))
    >>> list(finder.find(b"libruntime.so: undefined symbol: halSqMemGet"))
    [(15, b'undefined symbol'), (25, b'symbol: hal')]
    """

    def __init__(self, words: tuple[bytes, ...]) -> None:
        self._numbers = {w for w in words if len(w) == _DIGITS and w.isdigit()}
        words = tuple(w for w in words if w not in self._numbers)
        # The part that is looked for -> the words that hold it, and where in them it begins.
        self._parts: dict[bytes, list[tuple[int, bytes]]] = {}
        for word in words:
            begin = min(
                range(max(1, len(word) - _LEAST + 1)),
                key=lambda i, w=word: (_COMMON.get(w[i], _RARE), i),  # type: ignore[misc]
            )
            self._parts.setdefault(word[begin:], []).append((begin, word))
        tree: dict[Any, Any] = {}
        for part in self._parts:
            branch = tree
            for byte in part:
                branch = branch.setdefault(byte, {})
            branch[None] = {}
        self._regex = re.compile(_pattern(tree), re.DOTALL) if words else None
        # The longest part wins; the shorter ones that it begins with stand there too.
        self._at: dict[bytes, list[tuple[int, bytes]]] = {
            part: [w for n in range(1, len(part) + 1) for w in self._parts.get(part[:n], ())]
            for part in self._parts
        }

    def find(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield where each word stands, and the word, in the order in which they are met."""
        yield from heapq.merge(self._find_numbers(data), self._find_words(data))

    def _find_numbers(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        if self._numbers:
            for match in _RUN.finditer(data.translate(_ZEROS)):
                at, end = match.span()
                if end - at == _DIGITS and (word := data[at:end]) in self._numbers:
                    yield at, word

    def _find_words(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        if self._regex is None:
            return
        # Not finditer: a word may begin inside another.
        match = self._regex.search(data)
        while match is not None:
            at = match.start()
            for begin, word in self._at[match[0]]:
                if begin <= at and (not begin or data.startswith(word, at - begin)):
                    yield at - begin, word
            match = self._regex.search(data, at + 1)


@lru_cache(maxsize=8)
def finder(words: tuple[bytes, ...]) -> WordFinder:
    """Return the finder of these words; building one takes about 20 ms for 400."""
    return WordFinder(words)


def _pattern(branch: dict[Any, Any]) -> bytes:
    ways = [
        re.escape(bytes([byte])) + _pattern(rest)
        for byte, rest in sorted((b, r) for b, r in branch.items() if b is not None)
    ]
    if not ways:
        return b""
    joined = ways[0] if len(ways) == 1 else b"(?:" + b"|".join(ways) + b")"
    return b"(?:" + joined + b")?" if None in branch else joined
