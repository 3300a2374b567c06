"""The rows behind `explain`: each finds its own sample, cheaply, and says where it was read."""

from __future__ import annotations

import re
from re import _constants as op  # the parsed form is the only place that knows what must match
from re import _parser as parser

import pytest

import migrate_kit as mk
from migrate_kit.environment.answers import LANGUAGES, words_of
from migrate_kit.environment.error_codes import code_rows
from migrate_kit.environment.explain import explain
from migrate_kit.environment.signatures import ROLES, signatures
from migrate_kit.tables import read_table

ERRORS, BENIGN = signatures("errors"), signatures("benign")
ALL = [pytest.param(s, id=s.id) for s in (*ERRORS, *BENIGN)]
CHINESE = re.compile(r"[\u4e00-\u9fff]")
# A repeat of more than this, or several long ones behind each other, would take seconds on a long
# line of the wrong text.
MOST_REPEATS, MOST_WAYS = 300, 40_000


def runs(tree) -> list[list[str]]:
    """Return the alternatives of an expression, each as the runs of letters it must contain."""
    found = [[""]]
    for kind, value in tree:
        if kind is op.LITERAL:
            found = [[*r[:-1], r[-1] + chr(value)] for r in found]
        elif kind is op.IN and len(value) <= 3 and all(k is op.LITERAL for k, _ in value):
            found = [[*r[:-1], r[-1] + chr(v)] for r in found for _, v in value]
        elif kind is op.SUBPATTERN:
            found = joined(found, runs(value[3]))
        elif kind is op.BRANCH:
            found = joined(found, [r for way in value[1] for r in runs(way)])
        elif kind in {op.MAX_REPEAT, op.MIN_REPEAT} and value[:2] == (0, 1):
            found = found + joined(found, runs(value[2]))
        elif kind is op.AT or kind is op.ASSERT_NOT:
            pass  # takes no letter
        else:
            found = [[*r, ""] for r in found]
    return found


def joined(left, right):
    return [[*a[:-1], a[-1] + b[0], *b[1:]] for a in left for b in right]


def repeats(tree):
    """Yield (fewest, most) of every repeat, and whether one stands inside another."""
    for kind, value in tree:
        if kind in {op.MAX_REPEAT, op.MIN_REPEAT}:
            fewest, most, body = value
            yield fewest, most
            yield from repeats(body)
        elif kind is op.SUBPATTERN:
            yield from repeats(value[3])
        elif kind is op.BRANCH:
            for way in value[1]:
                yield from repeats(way)
        elif kind in {op.ASSERT, op.ASSERT_NOT}:
            yield from repeats(value[1])


@pytest.mark.parametrize("row", ALL)
def test_a_row_matches_its_sample(row):
    assert row.regex.search(row.row["sample"])


@pytest.mark.parametrize("row", ERRORS, ids=lambda s: s.id)
def test_a_sample_is_diagnosed_to_its_own_row_first(row):
    assert explain(row.row["sample"]).root.id == row.id


@pytest.mark.parametrize("row", BENIGN, ids=lambda s: s.id)
def test_a_benign_line_gives_nothing(row):
    found = explain(row.row["sample"])
    assert (found.answers, found.suspects, found.ok) == ([], [], True)
    assert row.id in {b.id for b in found.benign}


@pytest.mark.parametrize("row", ALL)
def test_what_a_row_matches_holds_one_of_its_words(row):
    words = [word.decode() for word in row.words]
    for way in runs(parser.parse(row.row["regex"])):
        assert any(word in run for word in words for run in way), way


@pytest.mark.parametrize("row", ALL)
def test_an_expression_is_bounded(row):
    ways = 1
    for fewest, most in repeats(parser.parse(row.row["regex"])):
        assert most <= MOST_REPEATS
        ways *= most - fewest + 1 if most - fewest > 8 else 1
    branches = row.row["regex"].count("|") + 1
    assert ways <= MOST_WAYS**branches


@pytest.mark.parametrize("row", ERRORS, ids=lambda s: s.id)
def test_a_row_says_everything_in_both_languages(row):
    assert row.role in ROLES
    assert 0 < row.priority < 100
    words = words_of(row.row)
    for language in LANGUAGES:
        for part in ("meaning", "cause", "fix", "next_check"):
            assert len(getattr(words[language], part)) > 2, (language, part)
    assert CHINESE.search(words["zh"].meaning + words["zh"].cause)
    assert words["zh"].fix != words["en"].fix or not re.search("[a-z]{4} [a-z]{4}", words["en"].fix)


def test_there_are_enough_rows():
    assert len(BENIGN) >= 20
    assert {"checkpoint", "mindspore", "atc", "onnx", "cambricon", "notebook"} <= {
        s.row["stage"] for s in ERRORS
    }
    assert len({s.id for s in ERRORS}) == len(ERRORS)


def test_every_code_has_words_in_both_languages():
    rows = code_rows()
    assert {"507011", "107001", "E10001", "E16002", "EZ1001", "EI0002"} <= set(rows)
    for code, row in rows.items():
        words = words_of(row)
        assert words["en"].meaning, code
        assert words["en"].fix, code
        assert CHINESE.search(words["zh"].meaning), code
        assert CHINESE.search(words["zh"].fix + words["zh"].cause), code


def test_every_kind_of_a_code_is_used():
    kinds = {row["kind"] for row in read_table("cann_kinds")}
    assert kinds == {row["kind"] for row in read_table("cann_codes")}


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("No module named 'x'|undefined symbol", ["No module"]),
        (r"[Gg]et{2}ing \w+ out", ["etting"]),
    ],
)
def test_the_check_of_words_finds_a_gap(pattern, words):
    ways = runs(parser.parse(pattern))
    assert not all(any(w in run for w in words for run in way) for way in ways)


@pytest.mark.parametrize("table", ["errors", "next_checks", "benign", "acl_codes", "atc_codes"])
def test_advice_names_only_what_the_package_has(table):
    words = " ".join(value for row in read_table(table) for value in row.values())
    for name in set(re.findall(r"\bmk\.(\w+(?:\.\w+)?)", words)):
        first, _, second = name.partition(".")
        assert first in mk.__all__
        assert not second or second in dir(getattr(mk, first)), name


def test_a_refused_dtype_is_looked_up_by_the_package():
    """What a row advises to type works as it stands."""
    (advice,) = re.findall(r"(mk\.dtypes\.lookup\([^\n]*?\)) ", words_of_id("OPS01").next_check)
    assert eval(advice, {"mk": mk}).status == "refused"  # noqa: S307 - our own table's words
    assert "mk.rehearse" in words_of_id("DTY04").next_check


def words_of_id(number):
    return words_of(next(s.row for s in ERRORS if s.id == number))["en"]
