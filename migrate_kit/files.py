"""Write a file whole or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from migrate_kit.errors import MigrateError


def write_text(path: Path, text: str) -> Path:
    """Write ``text`` to a temporary name beside ``path``, then rename it.

    Raises
    ------
    MigrateError
        If the folder cannot be written or the disk is full.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f"{path.name}.partial-", dir=path.parent)
    except OSError as error:
        raise _unwritable(path, error) from error
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.write(text)
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
    return path


def _unwritable(path: Path, error: OSError) -> MigrateError:
    return MigrateError(
        f"cannot write: {error.strerror or error}", str(path), "choose a folder you may write to"
    )
