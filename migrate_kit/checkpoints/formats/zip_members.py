"""The members of a zip archive, where they lie in the file."""

from __future__ import annotations

import struct
import zipfile
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from migrate_kit.checkpoints.formats.source import Source

MAGIC = b"PK\x03\x04"
# What zipfile makes of a damaged archive beside its own error.
_DAMAGE = (
    zipfile.BadZipFile, zlib.error, struct.error, OSError, ValueError, EOFError, RuntimeError,
    NotImplementedError, LookupError, OverflowError, MemoryError,
)  # fmt: skip


def first_member(source: Source) -> bytes:
    """Return the name of an archive's first member, or nothing if it is no archive."""
    head = source.head(512)
    length = int.from_bytes(head[26:28], "little")
    return head[30 : 30 + length] if head[:4] == MAGIC else b""


def members(source: Source) -> dict[str, zipfile.ZipInfo]:
    """Return the members by name.

    Raises
    ------
    MigrateError
        If the list at the archive's end is damaged or missing, as after a broken download.
    """
    try:
        with zipfile.ZipFile(source.path) as archive:
            return {info.filename: info for info in archive.infolist()}
    except _DAMAGE as error:
        raise source.damaged(
            f"it begins as a zip archive and does not end as one ({error})"
        ) from error


def place(source: Source, info: zipfile.ZipInfo) -> tuple[int, int]:
    """Return where a stored member's bytes begin in the file, and how many there are.

    Raises
    ------
    MigrateError
        If its header is not where the list says.
    """
    name = info.filename[:80]
    header = source.bytes(info.header_offset, 30, f"the header of {name}")
    if header[:4] != MAGIC:
        raise source.damaged(f"no header where {name} should begin")
    start = info.header_offset + 30 + sum(struct.unpack("<HH", header[26:30]))
    source.view(start, info.file_size, name)
    return start, info.file_size


def unpack(source: Source, info: zipfile.ZipInfo, most: int) -> bytes:
    """Return the first bytes of a packed member.

    Raises
    ------
    MigrateError
        If they cannot be unpacked.
    """
    try:
        with zipfile.ZipFile(source.path) as archive, archive.open(info) as file:
            return file.read(most)
    except _DAMAGE as error:
        raise source.damaged(f"{info.filename[:80]} cannot be unpacked ({error})") from error
