"""Look at files whose names come from variables: what cannot be looked at is not there.

pathlib raises where a folder may not be entered, a name is too long, a link leads to itself or the
working folder is gone. The doctor is asked exactly then, so it looks at files through these.
"""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migrate_kit.errors import MigrateError

if TYPE_CHECKING:
    import os


def _seen(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except (OSError, ValueError):  # ValueError: a name that holds a zero byte
        return None


def is_dir(path: Path) -> bool:
    """Say whether there is such a folder that can be reached."""
    seen = _seen(path)
    return seen is not None and stat.S_ISDIR(seen.st_mode)


def is_file(path: Path) -> bool:
    """Say whether there is such a regular file that can be reached; a pipe would never end."""
    seen = _seen(path)
    return seen is not None and stat.S_ISREG(seen.st_mode)


def exists(path: Path) -> bool:
    """Say whether anything of that name can be reached."""
    return _seen(path) is not None


def unreachable(path: Path) -> str:
    """Return why a folder cannot be reached; an empty text where it can."""
    try:
        return "" if stat.S_ISDIR(path.stat().st_mode) else "it is no folder"
    except OSError as error:
        return error.strerror or str(error)
    except ValueError as error:
        return str(error)


def changed(path: Path) -> float:
    """Return when a file was changed last, in seconds; 0 where it cannot be reached."""
    seen = _seen(path)
    return seen.st_mtime if seen is not None else 0.0


def resolve(path: Path) -> Path:
    """Return where a name leads; the name itself where that cannot be told."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError):  # RuntimeError: a link that leads to itself
        return path


def below(folder: Path, pattern: str) -> list[Path]:
    """Return what matches a pattern below a folder, sorted; nothing where it cannot be listed."""
    try:
        return sorted(folder.glob(pattern))
    except (OSError, RuntimeError, ValueError, NotImplementedError):
        return []


def text(path: Path, most: int = 1 << 16) -> str:
    """Return the beginning of a regular file; an empty text where it cannot be read."""
    if not is_file(path):
        return ""
    try:
        with path.open("rb") as file:
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return ""


def working_folder() -> str:
    """Return the working folder; an empty text where it has been removed."""
    try:
        return str(Path.cwd())
    except OSError:
        return ""


def home() -> Path | None:
    """Return the user's folder; None without HOME and without an entry of the user in passwd."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def as_path(value: Any, where: str) -> Path:
    """Return an argument as a path.

    Raises
    ------
    MigrateError
        If it is neither a text nor a path.
    """
    try:
        return Path(value)
    except TypeError as error:
        raise MigrateError(
            f"expected a path, found {type(value).__name__}", where, "give a str or a pathlib.Path"
        ) from error
