"""Plain records to JSON and back, every field checked: a snapshot may come from another machine."""

from __future__ import annotations

import dataclasses
import types
import typing
from functools import lru_cache
from typing import Any, TypeVar

from migrate_kit.errors import MigrateError

T = TypeVar("T")
MOST_TEXT, MOST_ITEMS = 1 << 20, 10_000
_MOST_NUMBER = 1 << 64


def to_plain(record: Any) -> dict[str, Any]:
    """Return a record as plain JSON values."""
    return dataclasses.asdict(record)


def from_plain(kind: type[T], data: object, where: str = "facts") -> T:
    """Build a record of ``kind``; fields that are not given keep their defaults.

    Raises
    ------
    MigrateError
        If a field is not known, or holds what it must not.

    Examples
    --------
    >>> @dataclasses.dataclass(frozen=True)
    ... class Point:
    ...     x: int = 0
    >>> from_plain(Point, {"x": 3})
    Point(x=3)
    """
    value: T = _value(kind, data, where)
    return value


def _wrong(where: str, wanted: str, data: object) -> MigrateError:
    return MigrateError(
        f"expected {wanted}, found {type(data).__name__}", where, "save the facts again"
    )


@lru_cache(maxsize=64)
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _value(kind: Any, data: object, where: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in {types.UnionType, typing.Union}:
        if data is None and type(None) in arguments:
            return None
        (kind,) = (a for a in arguments if a is not type(None))
        return _value(kind, data, where)
    if dataclasses.is_dataclass(kind):
        return _record(kind, data, where)
    if origin is dict:
        if not isinstance(data, dict) or len(data) > MOST_ITEMS:
            raise _wrong(where, "an object", data)
        return {
            _value(str, k, where): _value(arguments[1], v, f"{where}.{k}"[:200])
            for k, v in data.items()
        }
    if origin is tuple:
        if not isinstance(data, list | tuple) or len(data) > MOST_ITEMS:
            raise _wrong(where, "a list", data)
        return tuple(_value(arguments[0], v, f"{where}[{i}]") for i, v in enumerate(data))
    return _plain(kind, data, where)


def _plain(kind: Any, data: object, where: str) -> Any:
    if kind is float and type(data) is int and abs(data) < _MOST_NUMBER:
        return float(data)
    if type(data) is not kind:
        raise _wrong(where, kind.__name__, data)
    if isinstance(data, str) and len(data) > MOST_TEXT:
        raise MigrateError("a text above 1 MiB", where, "save the facts again")
    return data


def _record(kind: Any, data: object, where: str) -> Any:
    if not isinstance(data, dict):
        raise _wrong(where, "an object", data)
    hints = _hints(kind)
    if unknown := set(data) - set(hints):
        raise MigrateError(
            f"no such field: {min(map(str, unknown))[:80]!r}",
            where,
            "read it with the version of migrate-kit that wrote it",
        )
    return kind(**{k: _value(hints[k], v, f"{where}.{k}") for k, v in data.items()})
