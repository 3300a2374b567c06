"""A box to paste an error message into, and under it what it means."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import traitlets

from migrate_kit.errors import MigrateError
from migrate_kit.widgets.view import View, joined

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_SCRIPTS = ("text.js", "clipboard.js", "explain.js")
_LANGUAGES = ("en", "zh")
# A browser sends at most this many characters: a longer log is better named as a file.
MOST_SENT = 2_000_000
# Of a text that is already there, this much is put into the box.
_MOST_KEPT = 20_000
_MOST_SHOWN = 30
_EMPTY = (
    "<p>A box to paste an error message or log into; it works while the kernel runs."
    " Without it: <code>mk.explain(text)</code>, or"
    " <code>mk.explain(pathlib.Path(&quot;name.log&quot;))</code> for a file.</p>"
)


class ShownDiagnosis(Protocol):
    """A diagnosis as the box needs it."""

    @property
    def language(self) -> str:
        """The language it is in."""

    @property
    def notes(self) -> Sequence[Any]:
        """What was left out."""

    def in_language(self, language: str, /) -> ShownDiagnosis:
        """Return it in another language."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""

    def _repr_html_(self) -> str: ...


def script() -> str:
    """Return the widget's JavaScript as one module."""
    return joined(*_SCRIPTS)


def style() -> str:
    """Return the widget's style sheet."""
    return joined("theme.css", "explain.css")


class ExplainBox(View):
    """Explain what is pasted.

    Parameters
    ----------
    explain : callable
        What turns a text into a diagnosis.
    diagnosis : Diagnosis, optional
        What is shown at first.
    text : str
        What stands in the box at first.
    language : str
        ``en`` or ``zh``; the reader can change it.

    Attributes
    ----------
    diagnosis : Diagnosis or None
        What was found last.
    """

    _esm: ClassVar[str] = script()
    _css: ClassVar[str] = style()

    text = traitlets.Unicode("").tag(sync=True)
    language = traitlets.Unicode("en").tag(sync=True)
    most = traitlets.Int(MOST_SENT).tag(sync=True)
    request = traitlets.Dict({"number": 0, "text": ""}).tag(sync=True)
    answer = traitlets.Unicode("").tag(sync=True)

    def __init__(
        self,
        explain: Callable[[str], ShownDiagnosis],
        diagnosis: ShownDiagnosis | None = None,
        text: str = "",
        language: str = "en",
    ) -> None:
        self._explain = explain
        self.diagnosis = diagnosis
        first = {}
        if diagnosis is not None:
            language = diagnosis.language
            first = {"answer": answer_of(diagnosis, 0)}
        super().__init__(text=text[:_MOST_KEPT], language=language, **first)

    @traitlets.observe("request")
    def _asked(self, change: Mapping[str, Any]) -> None:
        asked = change["new"]
        number, text = asked.get("number"), asked.get("text")
        # It comes from a browser, and a saved notebook may hold anything.
        if not isinstance(number, int) or not isinstance(text, str):
            return
        try:
            found = self._explain(text)
            self.answer = answer_of(found, number)
            self.diagnosis = found
        except MigrateError as error:
            self.answer = json.dumps({"number": number, "message": str(error)})
        except Exception as error:  # noqa: BLE001 - one in a callback is invisible to the reader
            why = f"{type(error).__name__}: {error}"[:400]
            self.answer = json.dumps({"number": number, "message": f"This went wrong: {why}"})

    def __repr__(self) -> str:
        # anywidget's own holds a memory address, which no two runs of a notebook share.
        return "ExplainBox()" if self.diagnosis is None else repr(self.diagnosis)

    def _static_html(self) -> str:
        return _EMPTY if self.diagnosis is None else self.diagnosis._repr_html_()


def answer_of(diagnosis: ShownDiagnosis, number: int) -> str:
    """Return the diagnosis in every language as the answer to request ``number``, as JSON."""
    said = {}
    for language in _LANGUAGES:
        found = diagnosis.in_language(language).to_dict()
        said[language] = {
            key: found[key][:_MOST_SHOWN] for key in ("answers", "benign", "suspects")
        }
    notes = [note.what for note in diagnosis.notes]
    return json.dumps({"number": number, "said": said, "notes": notes}, ensure_ascii=False)
