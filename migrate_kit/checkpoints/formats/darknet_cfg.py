"""The text of a Darknet ``.cfg``: sections of ``key=value`` lines."""

from __future__ import annotations

import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from migrate_kit.errors import MigrateError
from migrate_kit.files import irregular
from migrate_kit.results import plain

if TYPE_CHECKING:
    import os

_MOST_BYTES = 4_000_000
_MOST_SECTIONS = 10_000
_MOST_NUMBERS = 10_000
# Darknet reads numbers with atoi and atof, which stop at the first character that is none.
_INTEGER = re.compile(r"[+-]?\d{1,9}(?=$|[.#;])")
_REAL = re.compile(r"[+-]?(\d{1,30}\.?\d{0,30}|\.\d{1,30})([eE][+-]?\d{1,2})?(?=$|[#;f])")


@dataclass(frozen=True)
class Section:
    """One section: ``[convolutional]`` and the lines below it.

    Attributes
    ----------
    type : str
        Its name without the brackets.
    number : int
        Which layer it is, from 0; -1 for ``[net]``.
    line : int
        Where its name stands in the file.
    file : str
        The file's name, for errors.
    options : dict of str to (str, int)
        Each key's value and line. Darknet takes the first of two equal keys, and so does this.
    again : list of str
        The keys that stand there more than once.
    """

    type: str
    number: int
    line: int
    file: str
    options: dict[str, tuple[str, int]] = field(default_factory=dict)
    again: list[str] = field(default_factory=list)

    @property
    def title(self) -> str:
        """The section in words."""
        which = f"section {self.number} " if self.number >= 0 else ""
        return f"{which}[{plain(self.type)[:40]}]"

    def error(self, what: str, key: str = "", fix: str = "") -> MigrateError:
        """Return an error that names the file, the section, the line and the key."""
        line = self.options[key][1] if key in self.options else self.line
        where = f"{self.file}, {self.title}, line {line}{f', {key}=' if key else ''}"
        return MigrateError(what, where, fix or "take the .cfg that belongs to the weights")

    def text(self, key: str, default: str = "") -> str:
        """Return a value as it stands."""
        return self.options[key][0] if key in self.options else default

    def integer(self, key: str, default: int, least: int, most: int) -> int:
        """Return a whole number between two bounds."""
        if key not in self.options:
            number = default
        else:
            found = _INTEGER.match(self.options[key][0])
            if not found:
                raise self.error(f"{self._shown(key)} is no whole number", key)
            number = int(found[0])
        if not least <= number <= most:
            raise self.error(f"{key}={number} is not between {least} and {most}", key)
        return number

    def real(self, key: str, default: float) -> float:
        """Return a number."""
        if key not in self.options:
            return default
        return self._real(self.options[key][0], key)

    def reals(self, key: str) -> list[float]:
        """Return a list of numbers, separated by commas."""
        return [self._real(item, key) for item in self._items(key)]

    def integers(self, key: str) -> list[int]:
        """Return a list of whole numbers, separated by commas."""
        found = [(item, _INTEGER.match(item)) for item in self._items(key)]
        for item, match in found:
            if not match:
                raise self.error(f"{plain(item)[:40]!r} is no whole number", key)
        return [int(match[0]) for _, match in found if match]

    def _items(self, key: str) -> list[str]:
        items = [i for i in self.text(key).partition("#")[0].split(",") if i]
        if len(items) > _MOST_NUMBERS:
            raise self.error(f"{len(items):,} numbers", key)
        return items

    def _real(self, text: str, key: str) -> float:
        found = _REAL.match(text)
        if not found:
            raise self.error(f"{plain(text)[:40]!r} is no number", key)
        return float(found[0])

    def _shown(self, key: str) -> str:
        return repr(plain(self.options[key][0])[:40])


def read_cfg(path: str | os.PathLike[str]) -> list[Section]:
    """Read the sections of a ``.cfg``; the first is ``[net]``.

    Raises
    ------
    MigrateError
        If it is no ``.cfg``; the text names the line.
    """
    path = Path(path)
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise irregular(path, mode)
        with path.open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise MigrateError(
            f"the .cfg cannot be read: {error.strerror or error}", str(path), "check the path"
        ) from error
    if len(raw) > _MOST_BYTES or b"\0" in raw:
        what = "holds more than 4 MB" if len(raw) > _MOST_BYTES else "is no text"
        raise MigrateError(
            f"the .cfg {what}", str(path), "pass the text file that describes the network"
        )
    return parse_cfg(raw.decode("utf-8", errors="replace"), path.name)


def parse_cfg(text: str, file: str = ".cfg") -> list[Section]:
    r"""Return the sections of a ``.cfg``'s text.

    Examples
    --------
    >>> net, conv = parse_cfg("[net]\nwidth=32\n[convolutional]\nfilters = 18 # 3 * 6\n")
    >>> conv.integer("filters", 1, 1, 100), conv.line
    (18, 3)
    """
    sections: list[Section] = []
    for number, raw in enumerate(text.splitlines(), 1):
        # Darknet drops every space, also inside of a value.
        line = "".join(raw.split())
        if not line or line[0] in "#;":
            continue
        if line[0] == "[":
            name = line[1:].partition("]")[0]
            sections.append(Section(name, len(sections) - 1, number, plain(file)))
            if len(sections) > _MOST_SECTIONS:
                raise sections[-1].error(f"more than {_MOST_SECTIONS:,} sections")
            continue
        key, equals, value = line.partition("=")
        if not sections or not equals:
            raise MigrateError(
                f"{plain(line)[:60]!r} is neither a [section] nor key=value",
                f"{plain(file)}, line {number}",
                "pass the .cfg of the network, or put a # before a comment",
            )
        key = plain(key)
        if key in sections[-1].options:
            sections[-1].again.append(key)
        sections[-1].options.setdefault(key, (value, number))
    if not sections or sections[0].type not in ("net", "network"):
        raise MigrateError(
            "the .cfg does not begin with [net]",
            plain(file),
            "pass the text file that describes the network",
        )
    return sections
