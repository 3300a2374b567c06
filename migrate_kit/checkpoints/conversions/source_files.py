"""What the arguments of a conversion name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migrate_kit.errors import MigrateError

if TYPE_CHECKING:
    from collections.abc import Sequence


def files_of(paths: Any, argument: str = "paths=") -> list[Any]:
    """Return the files of a path, a list or a dict of paths.

    Raises
    ------
    MigrateError
        If it is none of them.
    """
    found = list(paths.values()) if isinstance(paths, dict) else paths
    found = [found] if isinstance(found, str | os.PathLike) else found
    if not isinstance(found, list | tuple) or not all(
        isinstance(path, str | os.PathLike) for path in found
    ):
        raise MigrateError(
            f"no path: {type(paths).__name__}", argument, "pass a path, or a list or dict of paths"
        )
    return list(found)


def one_file(paths: Any, what: str) -> Path:
    """Return the one path that is meant."""
    found = files_of(paths)
    if len(found) != 1:
        raise MigrateError(f"{len(found)} files", "paths=", f"pass one: {what}")
    return Path(found[0])


def out_file(out: Any, name: str) -> Path:
    """Return the file to write; in a folder it gets the network's name."""
    path = Path(one_file(out, "the file to write"))
    return path / f"{name}.pth" if path.is_dir() or str(out).endswith(("/", os.sep)) else path


def out_files(out: Any, names: Sequence[str]) -> list[Path]:
    """Return the files to write, one a name: from a folder, a list, or a dict by name."""
    if isinstance(out, dict):
        missing = [name for name in names if name not in out]
        if missing:
            raise MigrateError(f"no file for {', '.join(missing)}", "out=", "name one file each")
        return [Path(out[name]) for name in names]
    if isinstance(out, str | os.PathLike):
        folder = Path(out)
        if folder.suffix and not folder.is_dir():
            raise MigrateError(
                f"{len(names)} files cannot be written to one", "out=", "pass a folder, or a list"
            )
        return [folder / f"{name}.pth" for name in names]
    found = [Path(path) for path in files_of(out, "out=")]
    if len(found) != len(names):
        raise MigrateError(
            f"{len(found)} files for {len(names)} networks",
            "out=",
            f"pass a folder, or one file each for {', '.join(names)}",
        )
    return found
