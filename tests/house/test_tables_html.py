"""Static tables read well in JupyterLab, which aligns every cell to the right by itself."""

import re

import pytest

from migrate_kit.results import number, table_html


def cells(markup):
    return re.findall(r"<td( [^>]*)?>([^<]*)<", markup)


def test_text_is_aligned_to_the_left_and_numbers_are_not():
    rows = [("conv", number(1.25), "1x3"), ("bn", number(float("nan")), "7"), ("", "−1.00e−5", "")]
    found = cells(table_html("caption", ("layer", "R", "shape"), rows))
    assert [bool(style) for style, _ in found] == [True, False, False] * 3


def test_a_name_is_escaped_and_an_empty_table_has_its_head():
    assert "<script" not in table_html("<script>", ("<script>",), [("<script>",)])
    assert table_html("none", ("a", "b"), []).count("<th ") == 2


def test_rows_of_unequal_length_are_refused():
    with pytest.raises(ValueError, match="argument"):
        table_html("x", ("a", "b"), [("1", "2"), ("3",)])


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1174.0, "1170"),
        (999.7, "1000"),
        (9999.0, "10000"),
        (-1234.5, "-1230"),
        (123.4, "123"),
        (0.01234, "0.0123"),
        (12345.0, "1.23e4"),
        (0.0, "0"),
        (float("inf"), "inf"),
    ],
)
def test_a_number_of_four_digits_is_written_out(value, shown):
    assert number(value) == shown
