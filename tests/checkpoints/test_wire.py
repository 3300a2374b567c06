"""The wire format, against what Google's protobuf writes."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migrate_kit.checkpoints.formats import repeated, wire
from migrate_kit.checkpoints.formats.repeated import Repeated
from migrate_kit.checkpoints.formats.source import Source
from migrate_kit.errors import MigrateError
from tests.checkpoints.schemas import loose_tensorflow, tensorflow

INT64 = st.integers(-(2**63), 2**63 - 1)


def of(content):
    return wire.Wire(Source.of_bytes(Path("x"), bytes(content)))


def fields(content):
    found = of(content)
    return list(found.fields(found.root, "the message"))


@settings(derandomize=True, database=None)
@given(INT64, st.floats(width=32, allow_nan=False), st.text(max_size=20))
def test_fields_are_what_protobuf_wrote(number, real, text):
    value = tensorflow.AttrValue(i=number, f=real, b=True, s=text.encode())
    content = value.SerializeToString()
    found = {field.number: field for field in fields(content)}
    assert found[3].signed == number
    assert found[4].real == real
    assert found[5].value == 1
    assert of(content).text(found[2], "a text") == text


@settings(derandomize=True, database=None)
@given(st.lists(INT64, max_size=50), st.lists(st.floats(allow_nan=False), max_size=20))
@pytest.mark.parametrize("schema", [tensorflow, loose_tensorflow], ids=["packed", "one by one"])
def test_repeated_numbers_are_what_protobuf_wrote(schema, integers, reals):
    message = schema.TensorProto(int64_val=integers, double_val=reals)
    content = message.SerializeToString() or b"\x08\x01"
    source = of(content)
    whole, double = Repeated(source, wire.VARINT, "a"), Repeated(source, wire.FIXED64, "b")
    for field in source.fields(source.root, "the message"):
        if field.number in (10, 6):
            (whole if field.number == 10 else double).add(field)
    assert whole.numbers().tolist() == integers
    assert double.numbers().tolist() == reals
    assert whole.numbers().dtype == np.int64
    assert double.most == len(reals)
    if len(integers) <= 64:
        assert whole.shape() == tuple(integers)


def test_many_numbers_are_decoded_block_by_block(monkeypatch):
    monkeypatch.setattr(repeated, "_BLOCK", 16)
    numbers = [0, 1, -1, 300, 2**63 - 1, -(2**63), 127, 128] * 9
    source = of(tensorflow.TensorProto(int64_val=numbers).SerializeToString())
    (field,) = source.fields(source.root, "the message")
    values = Repeated(source, wire.VARINT, "a")
    values.add(field)
    assert values.numbers().tolist() == numbers
    values.pieces = [(field.start, field.end - 1)]  # in the middle of the last one
    with pytest.raises(MigrateError, match="a number does not end"):
        values.numbers()


BAD = {
    "no number": b"\x00\x01",
    "a group": b"\x0b\x0c",
    "an unknown type": b"\x0e",
    "a number without end": b"\x08" + b"\xff" * 20,
    "a number that is cut": b"\x08\xff",
    "a key that is cut": b"\xff",
    "bytes that are cut": b"\x0a\x05ab",
    "bytes for ever": b"\x0a" + b"\xff" * 9 + b"\x01",
    "four of eight bytes": b"\x09\0\0\0\0",
    "a field number over 29 bits": b"\xf8\xff\xff\xff\x7f\x01",
}


@pytest.mark.parametrize("name", BAD)
def test_damage_is_said(name):
    with pytest.raises(MigrateError, match="damaged"):
        fields(BAD[name])


def test_more_fields_than_any_file_has_are_refused(monkeypatch):
    monkeypatch.setattr(wire, "_MOST_FIELDS", 1000)
    assert len(fields(b"\x08\x01" * 1000)) == 1000
    with pytest.raises(MigrateError, match="more than 1,000 parts"):
        fields(b"\x08\x01" * 1001)


def test_what_a_file_claims_is_counted_and_not_allocated():
    source = of(b"\x08\x01")
    tracemalloc.start()
    source.claim(600 << 20, "a tensor")
    with pytest.raises(MigrateError, match="not in the file"):
        source.claim(600 << 20, "another")
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_values_in_many_pieces_are_refused():
    source = of(b"\x52\x01\x05" * 10_001)
    values = Repeated(source, wire.VARINT, "a")
    *most, last = source.fields(source.root, "the message")
    for field in most:
        values.add(field)
    with pytest.raises(MigrateError, match="too many pieces"):
        values.add(last)


@pytest.mark.parametrize(
    ("content", "numbers"),
    [
        (b"\x08\x01\x12\x02ab", [1, 2]),
        (b"\x08\x01\x12\x7fab", [1, 2]),  # cut within the bytes
        (b"\x08\x01\x12", [1]),  # within the head of the field
        (b"\x08\x01\x0b" + b"x" * 40, []),  # something else
        (b"not a message at all, a text", []),
    ],
)
def test_a_beginning_is_known_where_the_file_is_cut(content, numbers):
    found = of(content)
    assert [field.number for field in found.begin(found.root)] == numbers


def test_a_message_inside_may_not_be_cut():
    found = of(b"\x0a\x03\x12\x7fa\x10\x01")
    (inner, _) = found.begin(found.root)
    assert found.begin(inner) == []


def test_a_name_is_short_and_a_text():
    for content in (b"\x0a\x01\xff", b"\x0a" + b"\x80\x80\x08" + b"a" * (1 << 17), b"\x08\x01"):
        source = of(content)
        (field,) = source.fields(source.root, "the message")
        with pytest.raises(MigrateError, match="a name is no text"):
            source.text(field, "a name")


def test_a_known_number_of_another_type_is_damage_and_an_unknown_one_is_passed_over():
    source = of(b"\x08\x01\x12\x01a")
    assert [f.number for f in source.fields(source.root, "m", {2: wire.BYTES})] == [2]
    with pytest.raises(MigrateError, match="field 2 is of the wrong type"):
        list(source.fields(source.root, "m", {2: wire.VARINT}))
