"""The original network beside the model: it settles what names and shapes leave open."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from migrate_kit.checkpoints.runs import copy_of, eval_mode
from migrate_kit.checkpoints.settle import Settler, listen
from migrate_kit.checkpoints.structure import members, named_layers
from migrate_kit.checkpoints.vocabulary import split_name
from migrate_kit.errors import MigrateError
from migrate_kit.layers.arguments import walk
from migrate_kit.layers.capture import capture
from migrate_kit.layers.compare import LayerDiff, compare
from migrate_kit.layers.runners.borrowed import one_thread
from migrate_kit.results import Finding, few, number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from migrate_kit.checkpoints.fit import Fit
    from migrate_kit.checkpoints.sides import Group, Piece
    from migrate_kit.checkpoints.state import StateDict
    from migrate_kit.checkpoints.structure import Choice
    from migrate_kit.layers.store import Trace

_WHERE = "reference="


class Original:
    """The network that the checkpoint was saved from, with its weights, and where each one is.

    ``homes`` are the names that the checkpoint's tensors have in it.
    """

    def __init__(
        self, network: torch.nn.Module, homes: Mapping[str, str], inputs: tuple[Any, ...]
    ) -> None:
        self.network, self.inputs = network, inputs
        self._homes = homes
        try:
            self.heard = listen(network, inputs)
        except Exception as error:
            raise MigrateError(
                f"the original network cannot run on these inputs: {type(error).__name__}: {error}",
                _WHERE,
                "pass what both networks take",
            ) from error

    def home(self, piece: Piece) -> str:
        """Return the layer of the original that a piece comes from."""
        return split_name(self._homes[piece.sources[0]])[0]


class Candidate:
    """A copy of the model that takes the checkpoint's tensors, for runs beside the original."""

    def __init__(self, model: torch.nn.Module, state: StateDict) -> None:
        if any(t.is_meta for t in (*model.parameters(), *model.buffers())):
            saved = set(model.state_dict())
            own = [n for n, b in model.named_buffers() if n not in saved and b.is_meta]
            if own:
                raise MigrateError(
                    f"the model is on the meta device, and its buffers {few(own)} are in no file",
                    _WHERE,
                    "build the model on the CPU to compare its values",
                )
            self.network = copy_of(model, meta=True).to_empty(device="cpu")
        else:
            self.network = copy_of(model)
        self._places = self.network.state_dict(keep_vars=True)
        self._state = state

    def put(self, name: str, piece: Piece) -> None:
        """Load one piece into its place."""
        tensors = [self._state[s] for s in piece.sources]
        value = tensors[0] if piece.make is None else piece.make(tensors)
        with torch.no_grad():
            self._places[name].copy_(value)

    def fill(self, placed: Mapping[str, Piece]) -> None:
        """Load all that is known."""
        for name, piece in placed.items():
            self.put(name, piece)


def settle(fit: Fit, chosen: Sequence[Choice], original: Original, candidate: Candidate) -> None:
    """Tell apart by values what has a counterpart of its own shape on both sides."""
    candidate.fill({n: p.piece for n, p in fit.pairs.items()})
    for choice in chosen:
        for ours, theirs, _, _ in choice.pairs:
            _put(fit, candidate, ours, theirs)

    def home(theirs: Group) -> str:
        return original.home(fit.pieces[next(iter(theirs.members.values()))])

    settler = Settler(
        candidate.network,
        original.inputs,
        original.heard,
        home,
        lambda ours, theirs: _put(fit, candidate, ours, theirs),
    )
    several = [c for c in chosen if len(c.ours) > 1 or len(c.theirs) > 1]
    alone = {g.path: h for c in chosen if c not in several for g, h, _, _ in c.pairs}
    if several:
        settler(several, alone | _by_name(fit))


def _by_name(fit: Fit) -> dict[str, Group]:
    return {g.path: h for g, h in named_layers(fit)}


def _put(fit: Fit, candidate: Candidate, ours: Group, theirs: Group) -> None:
    for name, piece in members(fit, ours, theirs):
        candidate.put(name, piece)


def prove(
    placed: Mapping[str, Piece], original: Original, candidate: Candidate
) -> tuple[LayerDiff, Finding]:
    """Compare the repaired model with the original, layer by layer."""
    candidate.fill(placed)
    layers: dict[str, str] = {}
    for name, piece in placed.items():
        layers.setdefault(original.home(piece), split_name(name)[0])
    with one_thread(original.network), eval_mode(original.network), eval_mode(candidate.network):
        before = _captured(original.network, original.inputs, layers.keys())
        after = _captured(candidate.network, original.inputs, layers.values())
        pairs = _records(layers, before, after)
        chosen = set(pairs.values())
        after.records = [r for r in after.records if r.channel != "forward" or r.name in chosen]
        diff = _of_layers(compare(before, after, pairing=pairs, replay=False))
    wrong = next((r for r in diff.rows if r.verdict in ("differs", "look")), None)
    compared = [r.R for r in diff.rows if r.verdict != "unpaired"]
    lost = len(layers) - len(pairs)
    alone = f"{lost} layers are called inside others and show in their outputs" if lost else ""
    if wrong is not None:
        what = (
            f"the repaired model computes something else than the original from"
            f" {wrong.candidate!r} on (R = {number(wrong.R)})"
        )
        fix = "compare that layer's settings (eps, padding, activation): report.proof has them all"
        return diff, Finding("error", what, wrong.layer, fix)
    worst = max(compared, default=0.0)
    how = f"R <= {number(worst)}, where 2 is rounding" if worst else "bit for bit"
    what = (
        f"the repaired model computes what the original does: {how}, at {len(compared)} tensors of"
        f" {len(pairs)} layers"
    )
    if vague := _proves_little(original.inputs, before):
        fix = "pass a real input: different values, not zeros"
        return diff, Finding("warning", f"{what}, but {vague}: that proves little", alone, fix)
    return diff, Finding("info", what, alone)


def _proves_little(inputs: tuple[Any, ...], trace: Trace) -> str:
    """Say why equal outputs say nothing of the weights; empty where they do."""
    given = [t for _, t in walk(list(inputs)) if t.is_floating_point()]
    if given and all(t.numel() == 0 or bool((t == t.reshape(-1)[0]).all()) for t in given):
        return "every input holds one value"
    layers = [r for r in trace.records if r.channel == "forward"]
    same = [r for r in layers if r.stats.numel == 0 or r.stats.nan or r.stats.min == r.stats.max]
    if layers and 2 * len(same) >= len(layers):
        return f"{len(same)} of {len(layers)} layers make NaN, nothing, or one value"
    return ""


def _of_layers(diff: LayerDiff) -> LayerDiff:
    """Leave out what lies inside a layer and has no counterpart."""
    kept = [i for i, row in enumerate(diff.rows) if row.verdict != "unpaired"]
    pairs = [diff._pairs[i] for i in kept]  # noqa: SLF001 - there is no public way to a part of it
    findings = [f for f in diff.findings if "unpaired" not in f.what]
    rows = [diff.rows[i] for i in kept]
    return LayerDiff(diff.reference, diff.candidate, pairs, rows, findings, noise=diff.noise)


def _captured(network: torch.nn.Module, inputs: tuple[Any, ...], names: Any) -> Trace:
    known = {n for n, _ in network.named_modules()}
    return capture(network, *inputs, layers=sorted({n for n in names if n and n in known}))


def _records(layers: Mapping[str, str], before: Trace, after: Trace) -> dict[str, str]:
    """Return which record is compared with which.

    A layer may do more than its counterpart: timm's BatchNorm has its activation inside. Then the
    record inside it that is nearest is the counterpart.
    """
    found = {}
    for theirs, ours in layers.items():
        one = [r for r in before.records if r.channel == "forward" and _is_in(r.module, theirs)]
        two = [r for r in after.records if r.channel == "forward" and _is_in(r.module, ours)]
        best = min(
            (
                (_far(before, a, after, b), i, j)
                for i, a in enumerate(one)
                for j, b in enumerate(two)
            ),
            default=None,
        )
        if best is not None and (one[best[1]].module == theirs or two[best[2]].module == ours):
            found[one[best[1]].name] = two[best[2]].name
    return found


def _is_in(module: str, layer: str) -> bool:
    return module == layer or (bool(layer) and module.startswith(f"{layer}."))


def _far(before: Trace, one: Any, after: Trace, two: Any) -> float:
    a, b = before.sketch(one), after.sketch(two)
    if a is None or b is None or one.shape != two.shape:
        return float("inf")
    return float((a - b).norm())
