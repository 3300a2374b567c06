"""What a file is that holds no weights to load, and what to do instead."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from migrate_kit.checkpoints.formats.structures import STRUCTURES, lfs_size, said
from migrate_kit.checkpoints.state import size_text
from migrate_kit.errors import MigrateError
from migrate_kit.results import plain
from migrate_kit.tables import read_table

if TYPE_CHECKING:
    from migrate_kit.checkpoints.formats.source import Source

# Kinds that say something themselves: why a download failed.
_SPEAKING = ("JSON", "XML", "text")


def refusal_of(source: Source) -> MigrateError | None:
    """Return the error that says what a file is instead of weights, or None if nothing is known.

    Parameters
    ----------
    source : Source
        A file that no reader recognises: some of these are also what readers take.

    Examples
    --------
    >>> from pathlib import Path
    >>> from migrate_kit.checkpoints.formats.source import Source
    >>> page = Source.of_bytes(Path("resnet50.pth"), b"<!DOCTYPE html><html>Sign in</html>")
    >>> print(refusal_of(page))
    no weights to load: a web page, not the file
      where: resnet50.pth
      fix:   download it again, signed in if need be, with the link to the file itself
    """
    for name, offset, magic, what, fix in _rows():
        found = STRUCTURES[name](source) if magic is None else _matches(source, offset, magic)
        if found:
            words = _words(source, name, what)
            return MigrateError(f"no weights to load: {words}", str(source.path), fix)
    return None


def _words(source: Source, name: str, what: str) -> str:
    size = lfs_size(source) if name == "Git LFS pointer" else None
    if size:
        return f"{what}, which has {size_text(size)} ({size:,} bytes)"
    text = plain(said(source))[:80] if name in _SPEAKING else ""
    return f"{what}: {text!r}" if text else what


def _matches(source: Source, offset: int, magic: tuple[int | None, ...]) -> bool:
    head = source.head(offset + len(magic))[offset:]
    return len(head) == len(magic) and all(
        wanted in (None, byte) for wanted, byte in zip(magic, head, strict=True)
    )


@lru_cache(maxsize=1)
def _rows() -> list[tuple[str, int, tuple[int | None, ...] | None, str, str]]:
    """Return the table's rows; a signature is bytes, None for any, or None for a structure."""
    return [
        (row["name"], int(row["offset"] or 0), _magic(row["magic"]), row["what"], row["fix"])
        for row in read_table("not_checkpoints")
    ]


def _magic(text: str) -> tuple[int | None, ...] | None:
    kind, _, value = text.partition(":")
    if kind == "text":
        return tuple(value.encode("ascii"))
    if kind == "hex":
        pairs = [value[at : at + 2] for at in range(0, len(value), 2)]
        return tuple(None if pair == ".." else int(pair, 16) for pair in pairs)
    return None
