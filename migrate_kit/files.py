"""Write a file whole or not at all."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from migrate_kit.errors import MigrateError

if TYPE_CHECKING:
    from collections.abc import Iterator

_KINDS = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISDIR, "a folder"),
)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file beside ``path`` for writing, and rename it once all went well.

    Raises
    ------
    MigrateError
        If the folder cannot be written or the disk is full, when the old file is whole; or if
        ``path`` is a device or a pipe, which a rename would replace.
    """
    try:
        _only_a_file(path)
        # Of a link the file behind it is written, and the link stays.
        path = Path(os.path.realpath(path))
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f"{path.name}.partial-", dir=path.parent)
    except (OSError, ValueError) as error:
        raise _unwritable(path, error) from error
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as out:
            yield out
        # mkstemp makes the file private; give it what a plain open would have given.
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise _unwritable(path, error) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _only_a_file(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise irregular(path, mode)


def irregular(path: Path, mode: int) -> MigrateError:
    """Return the error of a path that is a device, a pipe or a socket."""
    kind = next((name for test, name in _KINDS if test(mode)), "no file")
    return MigrateError(f"it is {kind}, and no file", str(path), "name a file")


def write_text(path: Path, text: str, errors: str = "backslashreplace") -> Path:
    """Write ``text`` to a temporary name beside ``path``, then rename it.

    Names and variables may hold bytes that are no UTF-8, which Python keeps as lone surrogates.
    What becomes of those is ``errors``'s to say; by default they are written as JSON spells them.

    Raises
    ------
    MigrateError
        If the folder cannot be written or the disk is full.
    """
    with replacing(path) as out:
        out.write(text.encode("utf-8", errors))
    return path


def _unwritable(path: Path, error: OSError | ValueError) -> MigrateError:
    reason = error.strerror if isinstance(error, OSError) else None
    return MigrateError(
        f"cannot write: {reason or error}", str(path), "choose a folder you may write to"
    )
