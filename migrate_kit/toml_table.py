"""Take values out of a TOML table by kind, and say what was wrong with one."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migrate_kit.errors import MigrateError, meant

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class TomlTable:
    """One table of a file, with the keys it may hold.

    Parameters
    ----------
    data : Any
        What the file has there; anything but a table is an error.
    keys : mapping of str to str, or None
        The keys it may hold, each with what it may be; None leaves the keys to somebody else.
    where : str
        How error texts name the place: the file and the table.
    folder : Path
        Where relative paths start.

    Examples
    --------
    >>> table = TomlTable({"sizes": [3, 4]}, {"sizes": "a list of numbers"}, "a.toml")
    >>> table.numbers("sizes", whole=True)
    (3, 4)
    """

    def __init__(
        self, data: Any, keys: Mapping[str, str] | None, where: str, folder: Path = Path()
    ) -> None:
        self.data, self.keys, self.where, self.folder = data, keys or {}, where, folder
        if not isinstance(data, dict):
            raise MigrateError(f"{data!r} is not a table", where, "write key = value lines there")
        for key in data if keys is not None else ():
            if key not in self.keys:
                raise MigrateError(
                    f"unknown key {key!r}{meant(key, self.keys)}",
                    where,
                    f"it may be one of: {', '.join(self.keys)}",
                )

    def error(self, key: str, wrong: str) -> MigrateError:
        """Return an error that names the key, what is wrong with it and what it may be."""
        return MigrateError(f"{key} {wrong}", self.where, f"{key} is {self.keys[key]}")

    def table(
        self, key: str, keys: Mapping[str, str] | None, *, required: bool = False
    ) -> TomlTable:
        """Return a table inside this one; a missing one is empty."""
        if required and key not in self.data:
            raise self.error(key, "is missing")
        return TomlTable(self.data.get(key, {}), keys, f"{self.where}, [{key}]", self.folder)

    def text(self, key: str, *, required: bool = False, among: Iterable[str] = ()) -> str:
        """Return a text that is not blank; a missing one is empty."""
        value = self.data.get(key, "")
        if key not in self.data:
            if required:
                raise self.error(key, "is missing")
        elif not isinstance(value, str) or not value.strip():
            raise self.error(key, f"is {value!r}")
        elif among and value not in among:
            raise self.error(key, f"is {value!r}{meant(value, among)}")
        return str(value)

    def path(self, key: str) -> Path | None:
        """Return the file that a text names; a missing text is None."""
        value = self.text(key)
        if not value:
            return None
        try:
            path = (self.folder / Path(value).expanduser()).resolve()
            found = path.is_file()
        except (OSError, ValueError, RuntimeError):  # a NUL, a name too long, an unknown ~user
            found = False
        if not found:
            raise self.error(key, f"names no file: {value!r}")
        return path

    def numbers(self, key: str, *, whole: bool, lengths: Iterable[int] = ()) -> tuple[Any, ...]:
        """Return a list of finite numbers, or the one number there is; a missing one is empty."""
        if key not in self.data:
            return ()
        value = self.data[key]
        values = value if isinstance(value, list) else [value]
        sound = all(_is_number(v, whole=whole) for v in values)
        if not sound or not values or (lengths and len(values) not in lengths):
            raise self.error(key, f"is {value!r}")
        return tuple(values)

    def number(self, key: str, *, whole: bool = False) -> Any:
        """Return one finite number; a missing one is None."""
        found = self.numbers(key, whole=whole)
        if isinstance(self.data.get(key), list):
            raise self.error(key, f"is {self.data[key]!r}")
        return found[0] if found else None


def _is_number(value: object, *, whole: bool) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (
        not whole and isinstance(value, float) and math.isfinite(value)
    )
