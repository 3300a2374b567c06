"""What a diagnosis says: the problems first, and for each what to do."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from migrate_kit.checkpoints.load_rows import LOADED
from migrate_kit.checkpoints.rules.attention import ASSUMED
from migrate_kit.checkpoints.rules.gaps import SECOND_SET
from migrate_kit.checkpoints.structure import BY_NUMBERING, BY_ORDER, BY_SHAPE, BY_VALUE
from migrate_kit.results import Finding, counted, few

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from migrate_kit.checkpoints.fit import Fit
    from migrate_kit.checkpoints.load_rows import LoadRow

_MOST = 6
_REPAIR = "model.load_state_dict(mk.diagnose(model, checkpoint).repair({}))"
_PROVE = "diagnose(model, checkpoint, *inputs, reference=original) proves it"


def advice(fit: Fit, rows: Sequence[LoadRow], error: str, cure: str) -> list[Finding]:
    """Return the findings, the gravest first; ``cure`` is the line of code that loads, or empty."""
    found = [
        *fit.findings,
        *_renamings(fit),
        *_structure(rows),
        *_ambiguities(fit),
        *_clashes(fit),
        *_lacking(fit),
        *_dtypes(fit),
        *_two_values(fit),
        *_second_sets(fit),
        *_unused(fit),
        *_kept(fit),
    ]
    levels = ("error", "warning", "info")
    return [*_verdict(rows, error, cure), *sorted(found, key=lambda f: levels.index(f.level))]


def repair_line(arguments: str) -> str:
    """Return the line that repairs and loads."""
    return _REPAIR.format(arguments)


def _verdict(rows: Sequence[LoadRow], error: str, cure: str) -> list[Finding]:
    if not error:
        return []
    own = [r for r in rows if r.key]
    apart = ("shape differs", "renamed", "made", "missing", "ambiguous")
    wrong = [
        r for r in own if r.status in apart or (r.status == "dtype differs" and r.source != r.key)
    ]
    loose = [r for r in rows if not r.key]
    parts = (
        [f"{len(wrong)} of {len(own)} names of the model find no fitting tensor"] if wrong else []
    )
    if loose:
        parts.append(f"{_n(loose, 'tensor')} of the checkpoint {_have(loose)} no place")
    what = " and ".join(parts) or error.partition(": ")[2] or error
    fix = cure or "no repair was found that loads; see below what is in the way"
    return [Finding("error", f"load_state_dict(strict=True) fails: {what}", "", fix)]


def _renamings(fit: Fit) -> list[Finding]:
    found = []
    for renaming in fit.renamings:
        named = [
            f"{p.piece.sources[0]} is {name}"
            for name, p in fit.pairs.items()
            if str(renaming) in p.piece.rules and p.piece.name == name
        ]
        if named:
            meaning = f": {renaming.meaning}" if renaming.meaning else ""
            found.append(Finding("info", f"{_n(named, 'name')}: {renaming}{meaning}", named[0]))
    counts: dict[str, list[str]] = defaultdict(list)
    known = {str(r) for r in fit.renamings}
    for pair in fit.pairs.values():
        for rule in dict.fromkeys(pair.piece.rules):
            if rule not in known:
                counts[rule].append(pair.piece.sources[0])
    for rule, names in sorted(counts.items(), key=lambda item: -len(item[1]))[:_MOST]:
        level, fix = ("warning", _PROVE) if rule.endswith(ASSUMED) else ("info", "")
        found.append(Finding(level, f"{_n(names, 'tensor')}: {rule}", few(names), fix))  # type: ignore[arg-type]
    return found


def _structure(rows: Sequence[LoadRow]) -> list[Finding]:
    counts = Counter(
        rule
        for r in rows
        if r.status in LOADED
        for rule in r.rule.split("; ")
        if rule.startswith("by ")
    )
    found = []
    sure = [f"{counts[r]} {r}" for r in counts if r != BY_ORDER]
    if sure:
        what = f"tensors placed without their names: {', '.join(sure)}"
        fix = "" if BY_VALUE in counts or not counts[BY_NUMBERING] + counts[BY_SHAPE] else _PROVE
        found.append(Finding("info", what, "", fix))
    if counts[BY_ORDER]:
        names = [r.key for r in rows if BY_ORDER in r.rule.split("; ")]
        what = f"{_n(names, 'tensor')} placed by nothing but the order of the file"
        found.append(Finding("warning", what, few(names), _PROVE))
    return found


def _ambiguities(fit: Fit) -> list[Finding]:
    fix = (
        "pass inputs and reference=original, which settles it; or pairs={name in the model: name in"
        ' the checkpoint}; or trust the order of the file: repair(order="trust")'
    )
    found = [
        Finding(
            "error",
            f"ambiguous: {_n(a.ours, 'layer')} of the model and {len(a.theirs)} of the file have"
            f" one shape; {a.reason}",
            f"{few(a.ours)} or {few(a.theirs)}",
            fix,
        )
        for a in fit.ambiguities[:_MOST]
    ]
    rest = fit.ambiguities[_MOST:]
    if rest:
        names = [name for a in rest for name in a.ours]
        found.append(Finding("error", f"ambiguous: {_n(rest, 'more shape')}", few(names), fix))
    return found


def _clashes(fit: Fit) -> list[Finding]:
    said: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, clash in fit.clashes.items():
        shapes = f"{_shape(clash.piece.shape)} for {_shape(fit.slots[name].shape)}"
        said[clash.argument, clash.reason].append(f"{name}: {shapes}")
    fixes = {
        "head": 'build the model with as many classes, or repair(head="keep") leaves its own head',
        "positions": 'repair(positions="resize")',
        "": "build the model with the sizes it was trained with",
    }
    groups = sorted(said.items(), key=lambda item: not item[0][0])
    found = [
        Finding(
            "error",
            f"{_n(names, 'shape')} differ{_s(names)}: {reason}",
            few(names),
            fixes[argument],
        )
        for (argument, reason), names in groups[:_MOST]
    ]
    rest = [name for _, names in groups[_MOST:] for name in names]
    if rest:
        found.append(
            Finding("error", f"{_n(rest, 'more shape')} differ{_s(rest)}", few(rest), fixes[""])
        )
    return found


def _lacking(fit: Fit) -> list[Finding]:
    fix = "nothing of this checkpoint fits: load the file of this network"
    if fit.pairs:
        fix = 'load a complete file; where the model\'s own values may stay, repair(missing="keep")'
    return [
        Finding("error", f"{_n(names, 'place')} stay{_s(names)} empty: {reason}", few(names), fix)
        for reason, names in _by_reason(fit.lacking.items())
    ]


def _dtypes(fit: Fit) -> list[Finding]:
    said: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, pair in fit.pairs.items():
        had, has = pair.piece.dtype, fit.slots[name].dtype
        if had != has:
            # Another kind of number is another meaning; a shorter float only rounds.
            loss = had.is_complex and not has.is_complex
            loss = loss or (had.is_floating_point and not has.is_floating_point)
            said["warning" if loss else "info", f"{had} for {has}"].append(name)
    return [
        Finding(
            "warning" if level == "warning" else "info",
            f"{len(names)} tensors are converted when they are loaded:"
            f" {kinds.replace('torch.', '')}",
            few(names),
            "" if level == "info" else "see that nothing is lost",
        )
        for (level, kinds), names in said.items()
    ]


def _two_values(fit: Fit) -> list[Finding]:
    """See two names of one tensor that the checkpoint has two values for."""
    first: dict[object, str] = {}
    names: list[str] = []
    for name, pair in fit.pairs.items():
        memory = fit.slots[name].memory
        other = first.setdefault(memory, name) if memory is not None else name
        one, two = fit.pairs[other].piece.sources, pair.piece.sources
        if set(one) != set(two):
            where = fit.memories.get(one[0])
            if where is None or where != fit.memories.get(two[0]):
                names.append(f"{other} and {name}")
    if not names:
        return []
    what = f"one tensor in the model and two in the checkpoint: {_n(names, 'pair')} of names"
    fix = "if they differ, the model needs both: build it without tied weights"
    return [Finding("warning", what, few(names), fix)]


def _second_sets(fit: Fit) -> list[Finding]:
    names = [n for n, why in fit.left_out.items() if why == SECOND_SET]
    if not names:
        return []
    what = f"the checkpoint holds a second set of the same weights ({_n(names, 'tensor')})"
    head = _common_head(names)
    if not head:
        return [Finding("info", what, few(names))]
    line = f"{{k.removeprefix({head!r}): v for k, v in state.items() if k.startswith({head!r})}}"
    return [Finding("info", what, few(names), f"to take that one: diagnose(model, {line})")]


def _unused(fit: Fit) -> list[Finding]:
    found = [
        Finding("warning", f"not used: {_n(names, 'tensor')} of the checkpoint: {why}", few(names))
        for why, names in _by_reason(fit.unexpected.items())
    ]
    others = {n: w for n, w in fit.left_out.items() if w != SECOND_SET}
    found += [
        Finding("info", f"left out: {_n(names, 'tensor')}: {why}", few(names))
        for why, names in _by_reason(others.items())
    ]
    return found


def _kept(fit: Fit) -> list[Finding]:
    return [
        Finding(
            "info", f"{_n(names, 'place')} keep{_s(names)} the model's own value: {why}", few(names)
        )
        for why, names in _by_reason(fit.kept.items())
    ]


def _n(names: Sequence[object], noun: str) -> str:
    return counted(len(names), noun)


def _have(names: Sequence[object]) -> str:
    return "has" if len(names) == 1 else "have"


def _s(names: Sequence[object]) -> str:
    """Return the ending of a verb: one differs, two differ."""
    return "s" if len(names) == 1 else ""


def _by_reason(items: Iterable[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    said: dict[str, list[str]] = defaultdict(list)
    for name, why in items:
        said[why].append(name)
    return sorted(said.items(), key=lambda item: -len(item[1]))[:_MOST]


def _common_head(names: Sequence[str]) -> str:
    head = names[0].partition(".")[0] + "."
    return head if all(n.startswith(head) for n in names) else ""


def _shape(shape: tuple[int, ...]) -> str:
    return " by ".join(map(str, shape)) or "one number"
