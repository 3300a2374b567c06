"""TensorFlow's sorted string table, which is LevelDB's with another magic number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from migrate_kit.checkpoints.formats.source import Source
from migrate_kit.checkpoints.formats.wire import BYTES, Field, Wire

if TYPE_CHECKING:
    from collections.abc import Iterator

MAGIC = bytes.fromhex("57fb808b247547db")
_FOOTER = 48
# A compression byte and a checksum follow each block.
_PLAIN, _SNAPPY = 0, 1
_LONGEST_KEY = 1 << 14
_MOST_KEYS = 64 << 20
# Three bytes of snappy are 64 at most.
_RATIO = 32


def is_table(source: Source) -> bool:
    """Whether the file ends as a table does."""
    return source.size >= _FOOTER and source.tail(len(MAGIC)) == MAGIC


class Table:
    """One table.

    Parameters
    ----------
    source : Source
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self._wire = Wire(source)
        self._blocks = self._keys = 0

    def entries(self) -> Iterator[tuple[bytes, Wire, Field]]:
        """Yield each key, and its value as a message.

        Raises
        ------
        MigrateError
            If the table is damaged: keys that do not ascend, blocks that are there twice.
        """
        if not is_table(self.source):
            raise self.source.damaged("it does not end as a table does")
        footer, end = self.source.size - _FOOTER, self.source.size - len(MAGIC)
        at = footer
        for _ in range(2):  # the handle of the meta index, which is empty, before this one
            _, at = self._wire.varint(at, end, "the footer")
        index = self._block(*self._handle(self._wire, at, end))
        last = b""
        first = True
        for _, wire, value in self._walk(*index):
            block = self._block(*self._handle(wire, value.start, value.end))
            for key, inner, message in self._walk(*block):
                if key <= last and not first:
                    raise self.source.damaged("the names in the table do not ascend")
                last, first = key, False
                yield key, inner, message

    def _handle(self, wire: Wire, at: int, end: int) -> tuple[int, int]:
        offset, at = wire.varint(at, end, "the place of a block")
        size, _ = wire.varint(at, end, "the place of a block")
        return offset, size

    def _block(self, offset: int, size: int) -> tuple[Wire, int, int]:
        """Return where a block's bytes are, unpacked if need be."""
        self._blocks += size
        if self._blocks > self.source.size:
            raise self.source.damaged("the blocks of the table overlap")
        kind = self.source.bytes(offset, size + 1, "a block of the table")[-1]
        if kind == _PLAIN:
            return self._wire, offset, offset + size
        if kind != _SNAPPY:
            raise self.source.damaged(f"a block of the table has the compression {kind}")
        data = unsnappy(self.source, self.source.view(offset, size, "a block of the table"))
        return Wire(Source.of_bytes(self.source.path, data)), 0, len(data)

    def _walk(self, wire: Wire, start: int, end: int) -> Iterator[tuple[bytes, Wire, Field]]:
        """Yield the entries of a block; a key leaves out what it shares with the one before."""
        what, source = "a block of the table", wire.source
        restarts = int.from_bytes(source.bytes(end - 4, 4, what), "little")
        at, end = start, end - 4 - 4 * restarts
        if end < start:
            raise self.source.damaged(f"{what} has {restarts:,} restarts")
        key = b""
        while at < end:
            shared, at = wire.varint(at, end, what)
            fresh, at = wire.varint(at, end, what)
            length, at = wire.varint(at, end, what)
            if shared > len(key) or fresh > _LONGEST_KEY or at + fresh + length > end:
                raise self.source.damaged(f"{what} has an entry that does not fit into it")
            key = key[:shared] + source.bytes(at, fresh, what)
            self._keys += len(key)
            if len(key) > _LONGEST_KEY or self._keys > _MOST_KEYS:
                raise self.source.damaged("the names in the table are too long")
            at += fresh
            yield key, wire, Field(0, BYTES, length, at, at + length)
            at += length


def unsnappy(source: Source, data: memoryview) -> bytes:
    """Unpack a block that snappy has packed (its format_description.txt).

    Examples
    --------
    >>> from pathlib import Path
    >>> packed = bytes([5, 0 << 2, 97, (4 - 1) << 2 | 2, 1, 0])
    >>> unsnappy(Source.of_bytes(Path("x"), packed), memoryview(packed))
    b'aaaaa'
    """
    wire = Wire(Source.of_bytes(source.path, bytes(data)))
    size, at = wire.varint(0, len(data), "a packed block")
    if size > len(data) * _RATIO:
        raise source.damaged(f"a packed block of {len(data):,} bytes would have {size:,}")
    out = bytearray()
    while at < len(data) and len(out) <= size:
        tag = data[at]
        if tag & 3 == 0:
            at, length = _literal(data, at)
            out += data[at : at + length]
            at += length
            continue
        width, length = ((0, 0), (1, 4 + (tag >> 2 & 7)), (2, 1 + (tag >> 2)), (4, 1 + (tag >> 2)))[
            tag & 3
        ]
        offset = int.from_bytes(data[at + 1 : at + 1 + width], "little")
        offset |= (tag >> 5) << 8 if width == 1 else 0
        at += 1 + width
        if not 0 < offset <= len(out):
            raise source.damaged("a packed block copies from before its beginning")
        piece = bytes(out[-offset:][:length])
        out += (piece * (length // len(piece) + 1))[:length]
    if len(out) != size or at != len(data):
        raise source.damaged("a packed block does not unpack to its size")
    return bytes(out)


def _literal(data: memoryview, at: int) -> tuple[int, int]:
    """Return where a literal begins, and its length: six bits, or one to four bytes."""
    length = data[at] >> 2
    if length < 60:
        return at + 1, length + 1
    width = length - 59
    return at + 1 + width, int.from_bytes(data[at + 1 : at + 1 + width], "little") + 1
