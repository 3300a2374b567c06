"""The one exception family: what was wrong, where, and what to do next."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class MigrateError(Exception):
    """A problem the reader can act on, in three short lines.

    Parameters
    ----------
    what : str
        What was wrong.
    where : str
        The file, key, layer or argument it was found in.
    fix : str
        What to do next.

    Examples
    --------
    >>> print(MigrateError("no such layer: 'conv9'", "layers=", "choose one of: conv1, conv2"))
    no such layer: 'conv9'
      where: layers=
      fix:   choose one of: conv1, conv2
    """

    def __init__(self, what: str, where: str = "", fix: str = "") -> None:
        self.what, self.where, self.fix = what, where, fix
        lines = [what]
        if where:
            lines.append(f"  where: {where}")
        if fix:
            lines.append(f"  fix:   {fix}")
        super().__init__("\n".join(lines))

    def __reduce__(self) -> tuple[type, tuple[str, str, str]]:
        # Exception would call __init__ with the joined text only; a test runner that sends
        # errors between processes needs the three parts back.
        return type(self), (self.what, self.where, self.fix)


def meant(word: str, known: Iterable[str]) -> str:
    """Return a question that names the closest known word, or nothing.

    Examples
    --------
    >>> meant("weigths", ["builder", "weights"])
    "; did you mean 'weights'?"
    """
    close = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean {close[0]!r}?" if close else ""
