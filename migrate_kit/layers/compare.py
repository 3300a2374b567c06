"""Compare two traces, layer by layer: how far apart, and is that rounding."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from migrate_kit.errors import MigrateError
from migrate_kit.layers.capture import LiveRun
from migrate_kit.layers.judge import Judge
from migrate_kit.layers.noise import ASSUMED_IN_U, NoiseFloor, noise_floor
from migrate_kit.layers.pairing import How, Pair, pair, pair_by_map
from migrate_kit.layers.replay import Replayer
from migrate_kit.layers.runners.borrowed import one_thread
from migrate_kit.layers.runners.torch_runner import ROOT
from migrate_kit.layers.store import Trace
from migrate_kit.results import Finding, Result, findings_html, number, table_html

if TYPE_CHECKING:
    import pandas as pd
    import torch

    from migrate_kit.layers.rows import LayerRow

_SHOWN = 12


class LayerDiff(Result):
    """What :func:`compare` found.

    Attributes
    ----------
    rows : list of LayerRow
        In the reference's execution order, the network's input first, gradients in backward order.
    noise : NoiseFloor or None
        The yardstick used.
    """

    kind = "layer diff"

    def __init__(
        self,
        reference: Trace,
        candidate: Trace,
        pairs: list[Pair],
        rows: list[LayerRow],
        findings: list[Finding],
        *,
        noise: NoiseFloor | None,
    ) -> None:
        self.reference, self.candidate, self.noise = reference, candidate, noise
        self.rows, self._pairs = rows, pairs
        self.findings = findings

    @property
    def ok(self) -> bool:
        """Whether no row differs."""
        compared = any(r.channel in ("forward", "output") for r in self._compared())
        return super().ok and compared and not any(r.verdict == "differs" for r in self.rows)

    def _compared(self) -> list[LayerRow]:
        return [r for r in self.rows if r.verdict != "unpaired"]

    @property
    def first_divergence(self) -> LayerRow | None:
        """The first row that differs by more than rounding, or None."""
        return next((r for r in self.rows if r.verdict == "differs"), None)

    @property
    def made_here(self) -> list[LayerRow]:
        """The rows whose own arithmetic differs, not only their input."""
        return [r for r in self.rows if r.origin == "made here"]

    def tensors(self, index: int) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """Return both tensors of row ``index``, memory-mapped; None where a side kept none."""
        chosen = self._pairs[index]
        ours, theirs = chosen.reference, chosen.candidate
        return (
            None if ours is None else self.reference.tensor(ours),
            None if theirs is None else self.candidate.tensor(theirs),
        )

    def to_frame(self) -> pd.DataFrame:
        """Return one line a row, every field of :class:`LayerRow`."""
        import pandas as pd

        return pd.DataFrame([{k: getattr(r, k) for k in r.__dataclass_fields__} for r in self.rows])

    def to_dict(self) -> dict[str, Any]:
        """Return what a project keeps: the verdict and the rows that are not ``same``."""
        flagged = [r.to_dict() for r in self.rows if r.verdict != "same"]
        return super().to_dict() | {"rows": len(self.rows), "flagged": flagged[:200]}

    def __repr__(self) -> str:
        first = self.first_divergence
        if first is not None:
            origin = f", {first.origin}" if first.origin else ""
            count = f"{self._count('differs')} of {len(self.rows)} differ"
            return f"LayerDiff({count}, first {first.layer!r}{origin})"
        looks, compared = self._count("look"), len(self._compared())
        alone = f", {len(self.rows) - compared} unpaired" if compared < len(self.rows) else ""
        said = f"{looks} to look at" if looks else "all same" if compared else "nothing compared"
        return f"LayerDiff({compared} rows, {said}{alone})"

    def _count(self, verdict: str) -> int:
        return sum(r.verdict == verdict for r in self.rows)

    def show(self) -> Any:
        """Return the live table: sort, filter, and see one layer's difference."""
        from migrate_kit.widgets.layer_diff import LayerDiffWidget

        return LayerDiffWidget(self)

    def as_page(self, rows: int = 50, path: str | Path | None = None) -> Any:
        """Return the same table as one page of HTML, for front ends without the extension.

        ``rows`` is how many layers keep their details; with ``path`` the page is written there, to
        be opened in any browser, and the path returned.
        """
        from migrate_kit.widgets.layer_diff import as_page, write_page

        return as_page(self, rows) if path is None else write_page(self, Path(path), rows)

    def _html(self) -> str:
        flagged = [r for r in self.rows if r.verdict != "same"]
        shown = (flagged or self.rows)[:_SHOWN]
        what = "flagged" if flagged else "rows"
        more = f"; the first {len(shown)} of {len(flagged or self.rows)} {what}"
        head = ("layer", "kind", "R", "verdict", "origin", "rel L2", "max |d|", "bits", "note")
        rows = [
            (
                r.layer or r.candidate,
                r.kind,
                number(r.R),
                r.verdict,
                r.origin,
                number(r.rel_l2),
                number(r.max_abs),
                arithmetic(r),
                r.note,
            )
            for r in shown
        ]
        return table_html(f"{self!r}{more}", head, rows) + findings_html(self.findings)


def arithmetic(row: LayerRow) -> str:
    """Say a layer's effective bits and what format they look like, where they say anything."""
    if math.isnan(row.bits) or row.arithmetic == "not rounding":
        return row.arithmetic
    return f"{row.bits:.1f} {row.arithmetic}"


def compare(
    reference: Trace | Any,
    candidate: Trace | Any,
    pairing: How | dict[str, str] = "auto",
    noise: NoiseFloor | Literal[False] | None = None,
    *,
    replay: bool = True,
) -> LayerDiff:
    """Compare two runs layer by layer.

    Each layer's difference is divided by what rounding does to that very layer (``R``); where the
    reference's model is still in memory, each of its layers is replayed in float64 on the
    candidate's own input, which tells an error made in a layer from one that only came in.

    Parameters
    ----------
    reference, candidate : Trace, runner that can ``load``, or path of a trace
        The reference is the run you trust.
    pairing : {"auto", "name", "scope", "structure"} or dict
        How layers are matched; a dict maps reference names to candidate names.
    noise : NoiseFloor, optional
        The yardstick. None measures it by a float64 run where the reference's model is in memory,
        and otherwise assumes a typical one and says so; False always assumes.
    replay : bool
        Whether to replay single layers.

    Returns
    -------
    LayerDiff

    Raises
    ------
    MigrateError
        If a trace is empty, damaged or from a newer version.

    Examples
    --------
    >>> import torch, migrate_kit as mk
    >>> model, x = torch.nn.Linear(64, 64), torch.randn(8, 64)
    >>> a = mk.capture(model, x)
    >>> with torch.no_grad():
    ...     _ = model.bias.add_(1e-3)
    >>> mk.compare(a, mk.capture(model, x)).ok
    False
    """
    ours, theirs = _as_trace(reference, "reference"), _as_trace(candidate, "candidate")
    if not (noise is None or noise is False or isinstance(noise, NoiseFloor)):
        raise MigrateError(
            f"noise is a {type(noise).__name__}",
            "noise=",
            "pass mk.noise_floor(model, *inputs), None to measure it here, or False to assume it",
        )
    pairs = (
        pair_by_map(ours, theirs, pairing)
        if isinstance(pairing, dict)
        else pair(ours, theirs, pairing)
    )
    findings: list[Finding] = []
    floor = noise if isinstance(noise, NoiseFloor) else None
    changed: list[str] = []
    if noise is None:
        floor, changed = _measured(ours, findings)
    dtype = floor.dtype if floor is not None else _dtype_of(ours)
    replays = {}
    if replay and not changed:
        replayer = Replayer(ours, theirs, dtype)
        with one_thread(replayer.model):
            for index, p in enumerate(pairs):
                if p.reference is not None and p.candidate is not None:
                    replays[index] = replayer(list(p.chain), p.candidate, p.inputs)
        changed = [pairs[i].chain[-1].name for i, r in replays.items() if r and r.changed]
    if changed:
        findings.append(_changed_finding(changed))
    if floor is None:
        findings.append(_assumed_finding())
    else:
        findings.extend(floor.findings)
        findings.extend(_foreign_noise(floor, ours))
    judge = Judge(ours, theirs, floor, dtype)
    with one_thread():
        rows = [judge(p, replays.get(i)) for i, p in enumerate(pairs)]
    rows = _innermost(rows, pairs)
    findings.extend(_findings(rows))
    return LayerDiff(ours, theirs, pairs, rows, findings, noise=floor)


def _as_trace(value: Any, side: str) -> Trace:
    if isinstance(value, Trace):
        return value
    if isinstance(value, str | Path):
        return Trace.load(value)
    if hasattr(value, "load"):
        loaded = value.load()
        if isinstance(loaded, Trace):
            return loaded
    raise MigrateError(
        f"the {side} is a {type(value).__name__}, not a trace",
        "compare(reference, candidate)",
        "capture it first: mk.capture(model, *inputs), or pass the folder that store= named",
    )


def _dtype_of(trace: Trace) -> str:
    formats = [r.dtype for r in trace.records if "float" in r.dtype]
    return max(sorted(set(formats)), key=formats.count) if formats else "float32"


def _measured(trace: Trace, findings: list[Finding]) -> tuple[NoiseFloor | None, list[str]]:
    """Return the yardstick, and the layers whose recorded values the model no longer gives.

    The model may have been changed since its capture, and then its float64 run would call the
    change rounding. So it runs once more in its own format: that run has its own yardstick, and
    must agree with the trace by it.
    """
    if not isinstance(trace.live, LiveRun):
        return None, []
    try:
        again = trace.live.repeat()
        floor = noise_floor(again)
    except MigrateError as error:
        findings.append(
            Finding("info", f"no float64 run was possible: {error.what}", error.where, error.fix)
        )
        return None, []
    judge = Judge(trace, again, floor, floor.dtype)
    with one_thread():
        rows = [judge(p, None) for p in pair(trace, again, "name")]
    changed = [r.layer or r.candidate for r in rows if r.verdict in ("differs", "unpaired")]
    return (None, changed) if changed else (floor, [])


def _changed_finding(changed: list[str]) -> Finding:
    return Finding(
        "warning",
        f"{len(changed)} tensors of the reference's model no longer come out as recorded: the model"
        " was changed after its capture, or draws random numbers of its own. 'Made here' is not"
        " told for them.",
        ", ".join(changed[:3]),
        "capture the reference again, or change a copy: copy.deepcopy(model)",
    )


def _assumed_finding() -> Finding:
    return Finding(
        "info",
        f"the rounding noise is assumed ({ASSUMED_IN_U:g} u on every layer), not measured: R is"
        " good to a factor of ten",
        "noise=",
        "pass noise=mk.noise_floor(model, *inputs), or NoiseFloor.from_file(...) written where the"
        " model is",
    )


def _foreign_noise(floor: NoiseFloor, trace: Trace) -> list[Finding]:
    own = [r.key for r in trace.records if r.channel == "forward"]
    known = sum(k in floor for k in own)
    if 2 * known >= len(own):
        return []
    what = f"the noise floor knows {known} of {len(own)} layers: it is another network's"
    return [Finding("warning", what, "noise=", "measure it with this model: mk.noise_floor(model)")]


def _innermost(rows: list[LayerRow], pairs: list[Pair]) -> list[LayerRow]:
    """Where a module and one inside it are both made here, it is the inner one's doing."""
    # The root has no name of its own: every other layer is inside it.
    modules = [p.reference.module or ROOT if p.reference else "" for p in pairs]
    made = {m for r, m in zip(rows, modules, strict=True) if r.origin == "made here"}
    return [
        replace(r, origin="inherited", note=r.note or "made in a layer inside it")
        if r.origin == "made here" and any(_is_inside(m, module) for m in made)
        else r
        for r, module in zip(rows, modules, strict=True)
    ]


def _is_inside(inner: str, outer: str) -> bool:
    return inner != outer and (outer == ROOT or inner.startswith(f"{outer}."))


def _findings(rows: list[LayerRow]) -> list[Finding]:
    found = []
    first = next((r for r in rows if r.verdict == "differs"), None)
    if first is not None:
        owner = _owner(first, rows)
        found.append(
            Finding("error", _sentence(first, owner), first.layer, _advice(owner or first))
        )
    if not any(r.verdict != "unpaired" and r.channel in ("forward", "output") for r in rows):
        found.append(
            Finding("error", "no layer of one run was found in the other", "", "pass pairing={...}")
        )
    found.extend(_unpaired(rows))
    return found


def _unpaired(rows: list[LayerRow]) -> list[Finding]:
    # What a runner could not record has nothing to be paired, whatever it is mapped to.
    known = ("computed", "not recorded")
    alone = [r for r in rows if r.verdict == "unpaired" and not r.note.startswith(known)]
    ours = [r.layer for r in alone if r.layer]
    theirs = [r.candidate for r in alone if not r.layer]
    if not alone:
        return []
    what = f"{len(ours)} tensors of the reference and {len(theirs)} of the candidate are unpaired"
    fix = "they are not compared; where two belong together, name them in pairing="
    if ours and theirs:
        fix += f"{{{ours[0]!r}: {theirs[0]!r}}}"
    return [Finding("info", what, ", ".join([*ours[:5], *theirs[: 5 - len(ours[:5])]]), fix)]


def _owner(first: LayerRow, rows: list[LayerRow]) -> LayerRow | None:
    """Return the layer that made the difference, where ``first`` is only a part of it.

    A convolution that rounds its input hands the rounded one to its padding, which runs first.
    """
    if first.origin != "inherited":
        return None
    made = (r for r in rows if r.origin == "made here")
    return next((r for r in made if _is_inside(first.layer, r.layer)), None)


def _sentence(first: LayerRow, owner: LayerRow | None) -> str:
    where = {"made here": "made in this layer", "inherited": "it came in with this layer's input"}
    how = f"made in {owner.layer!r} around it" if owner else where.get(first.origin, "")
    R = f"R = {number(first.R)}" if not math.isnan(first.R) else first.note
    return f"the runs part at {first.layer!r}: {R}{f'; {how}' if how else ''}"


def _advice(first: LayerRow) -> str:
    if first.channel == "input":
        return "the two runs were not given the same input: compare the preprocessing"
    if first.origin == "made here":
        form = first.arithmetic
        if form and form not in ("fp32", "not rounding"):
            return f"this layer's arithmetic looks like {form}: check precision switches"
        return "compare this layer's weights and settings"
    if first.origin == "inherited":
        return "look at what the network computes between this layer and the one before it"
    return "compare this layer's inputs, weights and settings"
