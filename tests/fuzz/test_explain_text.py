"""Text from strangers: whatever is pasted, there is an answer or a MigrateError, never more."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import migrate_kit as mk
from migrate_kit.environment import log_text
from migrate_kit.environment.signatures import signatures
from migrate_kit.environment.words import WordFinder

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

SETTINGS = settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
ROWS = (*signatures("errors"), *signatures("benign"))
PIECES = st.one_of(
    st.sampled_from([row.row["sample"] for row in ROWS]),
    st.sampled_from([word.decode() for row in ROWS for word in row.words]),
    st.sampled_from(
        ["\n", "\r\n", "\r", "\0", "\x1b[31m", "\x1b]0;", "\ufeff", "\u202e", "\ud800"]
    ),
    st.sampled_from(["<script>", "&lt;", "'\"><img src=x>", "error code is 507011", "E10001: "]),
    st.text(max_size=20),
)
TEXTS = st.lists(PIECES, max_size=12).map("".join)
TAGS = re.compile(r"<(?!/?(?:p|b|br|ul|li|em|code|table|caption|thead|tbody|tr|th|td)\b)")


def use(found) -> None:
    """Do with a diagnosis all that a notebook does."""
    assert not TAGS.search(found._repr_html_())
    assert "\n" not in repr(found)
    json.dumps(found.to_dict(), allow_nan=False).encode()
    for answer in (*found.answers, *found.benign):
        assert answer.line >= 1
        assert len(answer.text) < 4 * 300
    assert len(found.to_frame()) == len(found.answers)
    found.in_language("zh")._repr_html_().encode()


@SETTINGS
@given(text=TEXTS)
@example("\x1b[")
def test_any_text(text: str) -> None:
    found = mk.explain(text)
    use(found)
    lines = len(re.findall(r"\n|\r", text)) + 1
    assert all(a.line <= lines for a in found.answers)


@SETTINGS
@given(content=st.binary(max_size=400) | TEXTS.map(lambda t: t.encode("utf-16", "replace")))
def test_any_bytes(content: bytes) -> None:
    use(mk.explain(content))


@SETTINGS
@given(text=TEXTS, filler=st.integers(0, 4000), at=st.integers(0, 4000))
def test_a_long_text_in_pieces(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, filler: int, at: int
) -> None:
    for name, size in (("HEAD", 600), ("MIDDLE", 300), ("TAIL", 300), ("MOST", 1200)):
        monkeypatch.setattr(log_text, name, size)
    long = ("x" * 30 + "\n") * (filler // 31)
    long = long[:at] + text + long[at:]
    use(mk.explain(long))
    path = tmp_path / "any.log"
    path.write_bytes(long.encode("utf-8", "replace"))
    use(mk.explain(path))


@SETTINGS
@given(
    words=st.sets(st.text("ab1 ", min_size=1, max_size=7), min_size=1, max_size=8),
    text=st.text("ab12 \n", max_size=60),
)
def test_the_word_finder_finds_what_a_plain_search_finds(words: set[str], text: str) -> None:
    def digits(at: int, word: str) -> bool:
        beside = text[max(0, at - 1) : at] + text[at + len(word) : at + len(word) + 1]
        return len(word) == 6 and word.isdigit() and any(c.isdigit() for c in beside)

    expected = {
        (at, word.encode())
        for word in words
        for at in range(len(text))
        if text.startswith(word, at) and not digits(at, word)
    }
    finder = WordFinder(tuple(sorted(word.encode() for word in words)))
    assert sorted(finder.find(text.encode())) == sorted(expected)
