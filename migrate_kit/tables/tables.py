"""The one reader of the tables."""

from __future__ import annotations

import csv
from pathlib import Path

from migrate_kit.errors import MigrateError

FOLDER = Path(__file__).parent


def table_names() -> list[str]:
    """Return the names that :func:`read_table` knows.

    Examples
    --------
    >>> "targets" in table_names()
    True
    """
    return sorted(path.stem for path in FOLDER.glob("*.csv"))


def read_table(name: str, folder: Path = FOLDER) -> list[dict[str, str]]:
    """Return the rows of one table, as text.

    Parameters
    ----------
    name : str
        One of :func:`table_names`.
    folder : Path
        Where the tables are; another folder holds a user's own.

    Raises
    ------
    MigrateError
        If there is no such table, or it breaks the rules: a header whose names differ, with a
        ``source`` column; in every row as many fields as in the header, and a source.

    Examples
    --------
    >>> [row["target"] for row in read_table("targets")][:2]
    ['ascend310', 'ascend310b']
    """
    path = folder / f"{name}.csv"
    known = sorted(p.stem for p in folder.glob("*.csv"))
    if name not in known:
        raise MigrateError(f"no table {name!r}", str(folder), f"choose one of: {', '.join(known)}")
    try:
        with path.open(encoding="utf-8", newline="") as file:
            lines = csv.reader(file, strict=True)
            header = next(lines, [])
            rows = [(lines.line_num, line) for line in lines]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise MigrateError(
            f"the table cannot be read: {error}", str(path), "save it as UTF-8 CSV"
        ) from error
    if "source" not in header or len(set(header)) < len(header):
        raise MigrateError(
            f"the header is {','.join(header)!r}",
            f"{path}, line 1",
            "name each column once, and one of them 'source'",
        )
    for number, line in rows:
        if len(line) != len(header):
            raise MigrateError(
                f"{len(line)} fields where the header has {len(header)}",
                f"{path}, line {number}",
                "quote a field that holds a comma",
            )
        if not line[header.index("source")].strip():
            raise MigrateError(
                "a row without a source",
                f"{path}, line {number}",
                "say where the fact was read or measured",
            )
    return [dict(zip(header, line, strict=True)) for _, line in rows]
