"""What a program of this package prints, on whatever terminal."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import TextIO


def print_anything() -> None:
    """Let this process print letters that its terminal does not know, spelled out.

    Facts and names come from strangers, and a terminal may know one alphabet only; the default is
    to end at the first letter outside it, and after that nothing is printed at all.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="backslashreplace")


def say(text: str, stream: TextIO | None) -> None:
    """Print a text; a closed stream and a reader that has gone are no errors."""
    if stream is None:
        return
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        # Python writes what is left once more at its end, and complains of that too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
