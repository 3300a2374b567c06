"""What an error message means, what caused it and what to do: any traceback or log."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from migrate_kit.environment.answers import Answer, shown, words_of
from migrate_kit.environment.diagnosis import Diagnosis, check_language, is_certain
from migrate_kit.environment.error_codes import code_rows, search_codes
from migrate_kit.environment.log_text import read_log
from migrate_kit.environment.signatures import ROLES, Hit, matches, search, signatures
from migrate_kit.environment.suspects import suspects
from migrate_kit.results import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from migrate_kit.environment.error_codes import CodeHit
    from migrate_kit.environment.log_text import LogText

MOST_ANSWERS = 40
# Of a pasted text, for the box that shows the diagnosis.
MOST_KEPT = 20_000
# What a line was written at, as CANN, MindSpore, glog and logging write it.
_STAMP = re.compile(
    rb"(20\d\d)[-/](\d\d)[-/](\d\d)[-T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{3})(?:\.(\d{3}))?)?"
)
_STAMP_REACH = 2000


def explain(text: str | bytes | Path, language: str = "en") -> Diagnosis:
    """Say what a pasted error message or log means, the root cause first.

    Parameters
    ----------
    text : str, bytes or pathlib.Path
        A traceback or log, however long and whatever is mixed into it. A str is always the text
        itself; name a file as a Path. Of more than 32 MB the beginning, the end and the
        surroundings of the first error between them are read, and the result says so.
    language : str
        ``en`` or ``zh``.

    Returns
    -------
    Diagnosis
        ``.root`` is the best answer or None, ``.answers`` are all, ``.unknown`` says that nothing
        in the text is known, and ``.suspects`` then are the lines that look like the first error;
        ``.benign`` are warnings that do no harm, ``.calm`` says that there is nothing else.

    Raises
    ------
    MigrateError
        If ``text`` is of another type, or a file that cannot be read, or there is no such language.

    Notes
    -----
    Everything it knows is a row of ``tables/errors.csv``, ``benign.csv``, ``acl_codes.csv``,
    ``cann_codes.csv`` or ``atc_codes.csv``. Answers are ordered by what a row is (a cause, an
    effect of something else, a bare code, a wrapper, a notice), then by time where every line of
    that kind has one, then by line, then by how exact the row is.

    Examples
    --------
    >>> found = explain("AttributeError: 'collections.OrderedDict' object has no attribute 'eval'")
    >>> found.root.id, found.root.line
    ('SCR02', 1)
    """
    check_language(language)
    log = read_log(text)
    benign = signatures("benign")
    calm = {b.id for b in benign}
    found, complete = search(log, (*signatures("errors"), *benign), but=benign)
    hits = [h for h in found if h.signature.id not in calm]
    harmless = [h for h in found if h.signature.id in calm]
    said = {h.start for h in hits if _role(h) in {"cause", "effect"}}
    codes = [
        c
        for c in search_codes(log)
        if not (_claimed(c, hits) or _line_start(log, c) in said or _calm(log, c))
    ]
    answers = [_answer(log, h, language) for h in _ranked(log, hits)]
    answers += [_code_answer(log, c, language) for c in codes]
    # Stable: within a role the order is what _ranked made it, codes in the order of the text.
    answers.sort(key=lambda a: ROLES.index(a.role))
    notes = list(log.notes)
    if not complete:
        notes.append(
            Finding("info", "very many lines are alike; the first of each kind were examined")
        )
    sure = bool(answers) and is_certain(answers[0])
    return Diagnosis(
        answers[:MOST_ANSWERS],
        [_answer(log, h, language) for h in sorted(harmless, key=lambda h: h.start)],
        []
        if sure or (codes and answers)
        else suspects(log, benign, frozenset(h.start for h in hits)),
        notes,
        language,
        text=text[:MOST_KEPT].encode("utf-8", "replace").decode() if isinstance(text, str) else "",
        again=lambda other: explain(other, language),
    )


def explain_box(language: str = "en") -> Any:
    """Return a box to paste a message into, in a notebook; the diagnosis appears under it."""
    from migrate_kit.widgets.explain import ExplainBox

    check_language(language)
    return ExplainBox(lambda text: explain(text, language), language=language)


def _ranked(log: LogText, hits: Iterable[Hit]) -> list[Hit]:
    by_role: dict[str, list[Hit]] = {}
    for hit in hits:
        by_role.setdefault(_role(hit), []).append(hit)
    result = []
    for role in ROLES:
        some = by_role.get(role, [])
        stamps = {h.start: _stamp(log, h.start) for h in some}
        # Lines of several processes, one log after the other: the clock knows the order.
        timed = all(stamps.values())
        result += sorted(
            some,
            key=lambda h: (
                (stamps[h.start] or "") if timed else "",
                h.start,
                -h.signature.priority,
            ),
        )
    return result


def _role(hit: Hit) -> str:
    role = hit.signature.role
    return "notice" if hit.warns and role in {"cause", "effect"} else role


def _stamp(log: LogText, at: int) -> str:
    """Return when a line was written, by itself or by the nearest line before it."""
    end = log.data.find(b"\n", at, at + _STAMP_REACH)
    around = log.data[max(0, at - _STAMP_REACH) : end if end >= 0 else at + _STAMP_REACH]
    stamps = _STAMP.findall(around)
    return b"".join(part or b"000" for part in stamps[-1]).decode() if stamps else ""


def _claimed(code: CodeHit, hits: Iterable[Hit]) -> bool:
    """Whether a row already speaks of this code."""
    for hit in hits:
        if code.code in hit.signature.row["regex"] or code.code == hit.group:
            return True
        if code.code.endswith("9999") and hit.signature.row["component"] == "CANN inner":
            return True
    return False


def _line_start(log: LogText, code: CodeHit) -> int:
    return log.window(code.at).start


def _calm(log: LogText, code: CodeHit) -> bool:
    return matches(log.window(code.at).text, signatures("benign"))


def _answer(log: LogText, hit: Hit, language: str) -> Answer:
    row = hit.signature.row
    words = words_of(row)
    if row.get("look_up") and hit.group in code_rows():
        words = words_of(_joined(row, code_rows()[hit.group]))
    return Answer(
        hit.signature.id,
        log.line_number(hit.start),
        shown(hit.line, hit.span),
        words,
        row.get("command", ""),
        row["source"],
        _role(hit),
        language,
    )


def _joined(row: dict[str, str], code: dict[str, str]) -> dict[str, str]:
    """Return a row that only knows that a code was printed, with what the code means."""
    result = dict(row)
    for ending in ("", "_zh"):
        result["meaning" + ending] = f"{code['code']}: {code['meaning' + ending]}"
        for key in ("cause", "fix"):
            result[key + ending] = code.get(key + ending) or row[key + ending]
    return result


def _code_answer(log: LogText, hit: CodeHit, language: str) -> Answer:
    window = log.window(hit.at)
    at = len(log.data[window.start : hit.at].decode("utf-8", "ignore"))
    return Answer(
        hit.code,
        log.line_number(hit.at),
        shown(window.text, (at, at + len(hit.code))),
        words_of({"stage": "code", **hit.row}),
        "",
        hit.row["source"],
        "code",
        language,
    )
