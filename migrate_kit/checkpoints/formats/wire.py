"""Protobuf's wire format, read out of a mapped file without a schema and without trusting it."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from migrate_kit.errors import MigrateError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from migrate_kit.checkpoints.formats.source import Source

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
# A file of tiny fields would keep a reader busy for minutes.
_MOST_FIELDS = 10_000_000
_LONGEST_NAME = 1 << 16
# The key and the length of a field, ten bytes each.
_LONGEST_HEAD = 20
# What a file may claim without holding it: constants that repeat their last value.
_MOST_CLAIMED = 1 << 30


class Field(NamedTuple):
    """One field of a message: its number, its wire type, its value, and where that stands.

    ``value`` is the number, unsigned, or the count of bytes.
    """

    number: int
    kind: int
    value: int
    start: int
    end: int

    @property
    def signed(self) -> int:
        """The number as an int64 or int32, which protobuf writes in two's complement."""
        return self.value - (1 << 64) if self.value >> 63 else self.value

    @property
    def real(self) -> float:
        """The number as a float or double."""
        if self.kind == FIXED32:
            return float(struct.unpack("<f", self.value.to_bytes(4, "little"))[0])
        return float(struct.unpack("<d", self.value.to_bytes(8, "little"))[0])


class Wire:
    """The messages of one file.

    Nothing recurses: whoever knows the schema walks it, message by message.

    Parameters
    ----------
    source : Source

    Attributes
    ----------
    root : Field
        The whole file, as a message.

    Examples
    --------
    >>> from pathlib import Path
    >>> from migrate_kit.checkpoints.formats.source import Source
    >>> wire = Wire(Source.of_bytes(Path("x"), bytes([0x08, 0x96, 0x01, 0x12, 0x02, 0x68, 0x69])))
    >>> number, name = wire.fields(wire.root, "the file")
    >>> number.value, wire.text(name, "its name")
    (150, 'hi')
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.root = Field(0, BYTES, source.size, 0, source.size)
        self._bytes = source.view(0, source.size, "the file")
        self._left = _MOST_FIELDS
        self._claimed = 0

    def fields(
        self, message: Field, what: str, schema: Mapping[int, int] | None = None
    ) -> Iterator[Field]:
        """Yield the fields of a message.

        Parameters
        ----------
        message : Field
        what : str
            What the message is, for an error.
        schema : mapping of int to int, optional
            The wire types of the numbers that are wanted, -1 for any. Others are passed over, as
            protobuf does with what a newer program wrote; one of the wrong type is damage.
        """
        if message.kind != BYTES:
            raise self.source.damaged(f"{what} is no message")
        for field in self._fields(message, what):
            if schema is not None:
                kind = schema.get(field.number)
                if kind is None:
                    continue
                if kind not in (-1, field.kind):
                    raise self.source.damaged(f"{what}: field {field.number} is of the wrong type")
            yield field

    def begin(self, message: Field, most: int = 200) -> list[Field]:
        """Return the first fields of what may be a message, and may be cut off; to recognise it.

        Empty where it is no message.
        """
        found: list[Field] = []
        try:
            for field in self._fields(message, "the message"):
                found.append(field)
                if len(found) == most:
                    break
        except MigrateError:
            end = found[-1].end if found else message.start
            # A file that was cut ends within a field; anything else is no message.
            if message.end < self.source.size:
                return []
            last = self._cut(end)
            if not last and self.source.size - end > _LONGEST_HEAD:
                return []
            found.extend(last)
        return found

    def head(self, field: Field, most: int = 200) -> bytes:
        """Return the first bytes of a field, fewer where the file is cut."""
        return bytes(self._bytes[field.start : min(field.end, field.start + most)])

    def text(self, field: Field, what: str) -> str:
        """Return a short text: a name, not a document."""
        if field.kind != BYTES or field.value > _LONGEST_NAME:
            raise self.source.damaged(f"{what} is no text")
        try:
            return str(self._bytes[field.start : field.end], "utf-8")
        except UnicodeDecodeError as error:
            raise self.source.damaged(f"{what} is no text") from error

    def claim(self, count: int, what: str) -> None:
        """Note memory that the file asks for and does not hold."""
        self._claimed += count
        if self._claimed > _MOST_CLAIMED:
            raise self.source.damaged(f"{what} would need {count:,} bytes that are not in the file")

    def varint(self, at: int, end: int, what: str) -> tuple[int, int]:
        """Return the number at a place, unsigned, and where the next byte is."""
        data, value = self._bytes, 0
        for shift in range(0, 70, 7):
            if at >= end:
                break
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value & 0xFFFF_FFFF_FFFF_FFFF, at
        raise self.source.damaged(f"{what}: at byte {at:,} a number does not end")

    def _cut(self, at: int) -> list[Field]:
        """Return the field of bytes that the file's end cuts off."""
        try:
            key, at = self.varint(at, self.source.size, "a field")
            length, at = self.varint(at, self.source.size, "a field")
        except MigrateError:
            return []
        if key & 7 != BYTES or not key >> 3 or at + length <= self.source.size:
            return []
        return [Field(key >> 3, BYTES, length, at, self.source.size)]

    def _fields(self, message: Field, what: str) -> Iterator[Field]:
        data, at, end = self._bytes, message.start, message.end
        while at < end:
            self._left -= 1
            if self._left < 0:
                raise MigrateError(
                    f"the file has more than {_MOST_FIELDS:,} parts",
                    str(self.source.path),
                    "export the weights as safetensors or ONNX",
                )
            place, key, begin = at, data[at], at + 1
            if key > 127:
                key, begin = self.varint(at, end, what)
            number, kind = key >> 3, key & 7
            if kind == VARINT:
                value, at = self.varint(begin, end, what)
            elif kind == BYTES:
                value, begin = self.varint(begin, end, what)
                at = begin + value
            elif kind in (FIXED32, FIXED64):
                at = begin + (4 if kind == FIXED32 else 8)
                value = int.from_bytes(data[begin:at], "little")
            else:
                number = 0
            if not 0 < number < 1 << 29:
                raise self.source.damaged(f"{what}: what is at byte {place:,} is no field")
            if at > end:
                raise self.source.damaged(
                    f"{what}: a field would end at byte {at:,}, and its message ends at {end:,}"
                )
            yield Field(number, kind, value, begin, at)


def fits(found: list[Field], schema: Mapping[int, int]) -> bool:
    """Whether there are fields, and all of them are known and of the right type."""
    return bool(found) and all(schema.get(f.number) in (f.kind, -1) for f in found)
