"""What a pasted text was found to say, as a result: the root first, and what is not known said."""

from __future__ import annotations

import dataclasses
import html
from typing import TYPE_CHECKING, Any

from migrate_kit.environment.answers import LANGUAGES
from migrate_kit.errors import MigrateError
from migrate_kit.results import LEFT, Finding, Level, Result, findings_html, plain, table_html

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pandas as pd

    from migrate_kit.environment.answers import Answer
    from migrate_kit.environment.suspects import Suspect

COLUMNS = (
    "rank", "id", "line", "text", "meaning", "cause", "fix", "next_check", "command", "role",
    "source",
)  # fmt: skip
# Labels of the static view; the widget's own are in static/explain.js.
_LABELS: dict[str, dict[str, Any]] = {
    "en": {
        "line": "line {}",
        "cause": "Cause",
        "fix": "Fix",
        "command": "Command",
        "next_check": "Check next",
        "source": "Source",
        "others": "Also in this text",
        "benign": "Harmless lines",
        "unknown": "No known error in this text.",
        "calm": "Nothing wrong in this text: what it warns of is known and does no harm.",
        "nothing": "nothing in this text is known",
        "said": "it says",
        "also": "also",
        "harmless": "harmless",
        "perhaps": "perhaps the first error",
        "suspects": "Lines that look like the first error",
        "first": "Perhaps the reason: lines that are not in the table",
        "head": ("line", "what it says", "meaning", "fix"),
        "plain": ("line", "what it says"),
        "why": ("line", "what it says", "why it does no harm"),
    },
    "zh": {
        "line": "第 {} 行",
        "cause": "原因",
        "fix": "处理",
        "command": "命令",
        "next_check": "继续检查",
        "source": "依据",
        "others": "文本中的其他问题",
        "benign": "无害的行",
        "unknown": "文本中没有已知的错误。",
        "calm": "文本中没有错误：其中的告警是已知的，没有影响。",
        "nothing": "文本中没有已知的内容",
        "said": "内容",
        "also": "另有",
        "harmless": "无害",
        "perhaps": "可能最早出错的行",
        "suspects": "看起来最早出错的行",
        "first": "可能是真正的原因：表中没有收录的行",
        "head": ("行", "内容", "含义", "处理"),
        "plain": ("行", "内容"),
        "why": ("行", "内容", "为何无害"),
    },
}
# What a terminal shows of the root, in this order.
_TOLD = ("cause", "fix", "command", "next_check", "source")
_CERTAIN = {"cause", "effect"}


class Diagnosis(Result):
    """What :func:`migrate_kit.environment.explain.explain` found.

    Attributes
    ----------
    answers : list of Answer
        What the text says, the root cause first.
    benign : list of Answer
        Lines that look bad and do no harm.
    suspects : list of Suspect
        Lines that look like the first error and are in no table; empty where a cause was found.
    language : str
        ``en`` or ``zh``.
    text : str
        The beginning of what was pasted; empty for bytes and files.
    """

    kind = "diagnosis"

    def __init__(
        self,
        answers: Sequence[Answer],
        benign: Sequence[Answer],
        suspects: Sequence[Suspect],
        notes: Sequence[Finding],
        language: str,
        *,
        text: str = "",
        again: Callable[[str], Diagnosis] | None = None,
    ) -> None:
        self.answers = list(answers)
        self.benign = list(benign)
        self.suspects = list(suspects)
        self.notes = list(notes)
        self.language = language
        self.text = text
        self._explain = again

    @property
    def root(self) -> Answer | None:
        """The first answer, or None."""
        return self.answers[0] if self.answers else None

    @property
    def calm(self) -> bool:
        """Whether only lines that do no harm are known, and no other looks like an error."""
        return bool(self.benign) and not (self.answers or self.suspects)

    @property
    def unknown(self) -> bool:
        """Whether nothing in the text is known that says what is wrong, or that nothing is."""
        return not (self.answers or self.calm)

    def lines(self) -> list[str]:
        """Return the diagnosis as lines for a terminal, the root with its fix first."""
        label = _LABELS[self.language]
        lines = [label["calm" if self.calm else "nothing"]] if self.root is None else []
        if self.root is not None:
            root, where = self.root, label["line"].format(self.root.line)
            lines.append(f"{root.id}, {where}: {root.meaning}")
            named = [("said", root.text)]
            named += [(key, getattr(root, key)) for key in _TOLD]
            lines += [f"  {label[key].lower():<11}{text}" for key, text in named if text]
        for key, known in (("also", self.answers[1:]), ("harmless", self.benign)):
            for a in known:
                where = label["line"].format(a.line)
                lines.append(f"{label[key]} {a.id}, {where}: {a.meaning}")
        perhaps = label["perhaps"]
        lines += [f"{perhaps}, {label['line'].format(s.line)}: {s.text}" for s in self.suspects]
        return [plain(line) for line in lines]

    @property
    def findings(self) -> list[Finding]:  # type: ignore[override]
        """The answers and what was left out, as findings."""
        label = _LABELS[self.language]["line"]
        result = []
        for n, answer in enumerate(self.answers):
            level: Level = "info" if answer.role == "notice" else "warning" if n else "error"
            where = f"{answer.id}, {label.format(answer.line)}"
            result.append(Finding(level, answer.meaning, where, answer.fix))
        looks_bad = [Finding("warning", s.text, label.format(s.line)) for s in self.suspects]
        return [*result, *looks_bad, *self.notes]

    def in_language(self, language: str) -> Diagnosis:
        """Return the same diagnosis in ``en`` or ``zh``.

        Raises
        ------
        MigrateError
            If there is no such language.
        """
        check_language(language)
        answers = [dataclasses.replace(a, language=language) for a in self.answers]
        benign = [dataclasses.replace(a, language=language) for a in self.benign]
        kept = {"text": self.text, "again": self._explain}
        return Diagnosis(answers, benign, self.suspects, self.notes, language, **kept)  # type: ignore[arg-type]

    def to_frame(self) -> pd.DataFrame:
        """Return one row an answer, the root first."""
        import pandas as pd

        rows = [{"rank": n, **a.to_dict()} for n, a in enumerate(self.answers, 1)]
        return pd.DataFrame(rows, columns=list(COLUMNS))

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values, in the diagnosis's language."""
        return super().to_dict() | {
            "answers": [a.to_dict() for a in self.answers],
            "benign": [a.to_dict() for a in self.benign],
            "suspects": [vars(s) for s in self.suspects],
            "language": self.language,
        }

    def show(self) -> Any:
        """Return a box to paste into, with this diagnosis under it."""
        from migrate_kit.widgets.explain import ExplainBox

        return ExplainBox(self._explain or (lambda _: self), self, self.text)

    def __repr__(self) -> str:
        if self.calm:
            first = self.benign[0]
            return f"Diagnosis(nothing wrong: {first.id}, line {first.line}, is harmless)"
        if self.root is None:
            if not self.suspects:
                return "Diagnosis(nothing known, and no line looks like an error)"
            return f"Diagnosis(nothing known; line {self.suspects[0].line} looks like an error)"
        more = len(self.answers) - 1
        return (
            f"Diagnosis({self.root.id}, line {self.root.line}: {self.root.meaning}"
            + f"; and {more} more" * bool(more)
            + ")"
        )

    def _html(self) -> str:
        label = _LABELS[self.language]
        parts = []
        if self.root is None:
            parts.append(f"<p><b>{label['calm' if self.calm else 'unknown']}</b></p>")
        else:
            parts.append(_root_html(self.root, label))
        if self.suspects:
            title = label["first"] if self.root else label["suspects"]
            rows = [(str(s.line), s.text) for s in self.suspects]
            parts.append(table_html(title, label["plain"], rows))
        if len(self.answers) > 1:
            rows4 = [(str(a.line), a.text, a.meaning, a.fix) for a in self.answers[1:]]
            parts.append(table_html(label["others"], label["head"], rows4))
        if self.benign:
            rows3 = [(str(a.line), a.text, a.meaning) for a in self.benign]
            parts.append(table_html(label["benign"], label["why"], rows3))
        return "".join(parts) + findings_html(self.notes)


def check_language(language: str) -> None:
    """Raise a MigrateError for a language that is not there."""
    if language not in LANGUAGES:
        raise MigrateError(
            f"no explanations in {language!r}",
            "language=",
            f"choose one of: {', '.join(LANGUAGES)}",
        )


def is_certain(answer: Answer) -> bool:
    """Whether an answer names what is wrong, not only that something is."""
    return answer.role in _CERTAIN


def _root_html(answer: Answer, label: dict[str, Any]) -> str:
    esc = html.escape
    rows = [
        (label[key], esc(getattr(answer, key)))
        for key in ("cause", "fix", "next_check", "source")
        if getattr(answer, key)
    ]
    if answer.command:
        rows.insert(2, (label["command"], f"<code>{esc(answer.command)}</code>"))
    body = "".join(f"<tr><th scope='row'{LEFT}>{k}</th><td{LEFT}>{v}</td></tr>" for k, v in rows)
    return (
        f"<p><b>{esc(answer.meaning)}</b> ({esc(answer.id)})</p>"
        f"<p>{esc(label['line'].format(answer.line))}: <code>{esc(answer.text)}</code></p>"
        f"<table><tbody>{body}</tbody></table>"
    )
