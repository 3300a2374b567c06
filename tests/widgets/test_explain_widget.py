"""The Python half of the box: what it answers, and what it shows where it cannot run."""

from __future__ import annotations

import json

import pytest

import migrate_kit as mk
from migrate_kit.widgets.explain import ExplainBox, answer_of

KNOWN = "AttributeError: 'collections.OrderedDict' object has no attribute 'eval'"


@pytest.fixture
def box():
    return mk.explain_box()


def answered(box):
    return json.loads(box.answer)


def test_a_text_is_answered_in_every_language(box):
    box.request = {"number": 1, "text": KNOWN}
    answer = answered(box)
    assert answer["number"] == 1
    assert box.diagnosis.root.id == "SCR02"
    for language in ("en", "zh"):
        first = answer["said"][language]["answers"][0]
        assert first == mk.explain(KNOWN, language).root.to_dict()


def test_an_answer_carries_the_number_of_its_question(box):
    sent = []
    box.observe(lambda change: sent.append(json.loads(change["new"])["number"]), "answer")
    for number in (1, 2, 3):
        box.request = {"number": number, "text": KNOWN}
    assert sent == [1, 2, 3]


@pytest.mark.parametrize(
    "asked",
    [{}, {"number": 1}, {"text": "a"}, {"number": "1", "text": "a"}, {"number": 1, "text": 3}],
)
def test_a_question_that_makes_no_sense_is_ignored(box, asked):
    box.request = asked
    assert box.answer == ""


def test_an_error_becomes_a_sentence_not_a_dead_widget():
    def explain(text):
        if text == "wrong":
            raise mk.MigrateError("what", "where", "fix")
        return 1 / 0

    box = ExplainBox(explain)
    box.request = {"number": 1, "text": "wrong"}
    assert answered(box)["message"].startswith("what")
    box.request = {"number": 2, "text": "worse"}
    assert "ZeroDivisionError" in answered(box)["message"]


def test_what_is_sent_has_a_limit():
    samples = "\n".join(f"E{code}: x" for code in range(10001, 10100))
    found = mk.explain(samples)
    said = json.loads(answer_of(found, 1))["said"]["en"]
    assert len(found.answers) > len(said["answers"]) == 30
    box = ExplainBox(mk.explain, found, "x" * 10**6)
    assert len(box.text) == 20_000


def test_notes_and_suspects_travel(box):
    box.request = {"number": 1, "text": "OddError: x"}
    assert answered(box)["said"]["en"]["suspects"] == [{"line": 1, "text": "OddError: x"}]
    box.request = {"number": 2, "text": ""}
    assert answered(box)["notes"] == ["there is no text to explain"]


def test_static_html_stands_beside_the_live_view(box):
    data, _ = box._repr_mimebundle_()
    assert "mk.explain(text)" in data["text/html"]
    assert "application/vnd.jupyter.widget-view+json" in data
    assert data["text/plain"] == "ExplainBox()"
    shown = mk.explain(KNOWN).show()
    data, _ = shown._repr_mimebundle_()
    assert data["text/html"] == mk.explain(KNOWN)._repr_html_()
    assert data["text/plain"] == repr(shown) == repr(mk.explain(KNOWN))


def test_the_language_is_the_diagnosis_s():
    box = mk.explain(KNOWN, language="zh").show()
    assert box.language == "zh"
    with pytest.raises(mk.MigrateError):
        mk.explain_box("fr")
