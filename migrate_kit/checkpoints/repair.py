"""From a diagnosis to a state_dict that loads strictly, or the list of what keeps it from it."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch

from migrate_kit.checkpoints.proof import made
from migrate_kit.checkpoints.state import Entry, StateDict, entry_of
from migrate_kit.errors import MigrateError
from migrate_kit.results import few

if TYPE_CHECKING:
    from collections.abc import Mapping

    from migrate_kit.checkpoints.fit import Clash, Fit
    from migrate_kit.checkpoints.proof import Trial
    from migrate_kit.checkpoints.sides import Piece, Slot

_WHERE = "repair()"


@dataclass(frozen=True)
class Allowed:
    """What a repair may do beyond renaming and rearranging."""

    head: Literal["error", "keep"] = "error"
    positions: Literal["error", "resize", "keep"] = "error"
    missing: Literal["error", "keep"] = "error"
    order: Literal["check", "trust"] = "check"
    proof: Literal["check", "ignore"] = "check"

    def check(self) -> None:
        """Refuse a word that is none of these."""
        known = {
            "head": ("error", "keep"),
            "positions": ("error", "resize", "keep"),
            "missing": ("error", "keep"),
            "order": ("check", "trust"),
            "proof": ("check", "ignore"),
        }
        for name, words in known.items():
            value = getattr(self, name)
            if value not in words:
                said = ", ".join(map(repr, words))
                raise MigrateError(f"{name} is {value!r}", _WHERE, f"use one of: {said}")

    def code(self) -> str:
        """Return the arguments as they are written in a call."""
        default = Allowed()
        return ", ".join(
            f'{name}="{value}"'
            for name, value in vars(self).items()
            if value != getattr(default, name)
        )


class Problems:
    """What keeps a repair from being made, in words, the first cure first."""

    def __init__(self) -> None:
        self._said: list[tuple[str, list[str], str]] = []

    def __bool__(self) -> bool:
        return bool(self._said)

    def add(self, what: str, names: list[str], fix: str) -> None:
        """Note one kind of problem and where it is."""
        if names:
            self._said.append((what, names, fix))

    def error(self) -> MigrateError:
        """Return all of it as one error."""
        what = "; ".join(f"{len(names)} {w} ({few(names)})" for w, names, _ in self._said)
        fixes = dict.fromkeys(fix for *_, fix in self._said if fix)
        return MigrateError(f"cannot be placed: {what}", _WHERE, "; ".join(fixes))


def plan(fit: Fit, allowed: Allowed) -> tuple[dict[str, Piece], list[str], Problems]:
    """Return what goes where, which places keep the model's own value, and what is in the way."""
    problems = Problems()
    placed = {name: pair.piece for name, pair in fit.pairs.items()}
    kept = list(fit.kept)
    problems.add(
        "tensors of a LoRA could not be merged",
        fit.blocked,
        "give its alpha, diagnose(..., lora_alpha=...), or leave them out:"
        " {k: v for k, v in state.items() if 'lora_' not in k}",
    )
    _settle_clashes(fit, allowed, placed, kept, problems)
    for ambiguity in fit.ambiguities:
        if allowed.order == "trust" and ambiguity.guess:
            placed |= ambiguity.guess
        else:
            problems.add(
                f"places are ambiguous: {ambiguity.reason}",
                list(ambiguity.ours),
                "settle it with values, diagnose(model, checkpoint, *inputs, reference=original),"
                " or by hand, diagnose(..., pairs={name in the model: name in the checkpoint})"
                + (', or trust the order, repair(order="trust")' if ambiguity.guess else ""),
            )
    open_names = [n for n in fit.slots if n not in placed and n not in kept]
    rest = [n for n in open_names if n in fit.lacking]
    if rest and not any(fit.slots[n].is_tensor for n in placed):
        problems.add(
            "places have no value in the checkpoint, and none has one",
            rest,
            "nothing of this checkpoint fits: it is another network's, or its tensors are packed",
        )
    elif allowed.missing == "keep":
        kept += rest
    else:
        problems.add(
            "places have no value in the checkpoint",
            rest,
            'if the model\'s own values may stay: repair(missing="keep")',
        )
    empty = [n for n in kept if not _has_value(fit.slots[n])]
    problems.add(
        "places keep values that a model on the meta device does not have",
        empty,
        "build the model on the CPU",
    )
    return placed, kept, problems


def repaired(
    fit: Fit, state: StateDict, metadata: Any, trial: Trial, allowed: Allowed
) -> StateDict:
    """Return the state_dict; its tensors are read, and made, when they are asked for.

    Raises
    ------
    MigrateError
        If a place would be left without a value, or the result does not load strictly.
    """
    allowed.check()
    placed, kept, problems = plan(fit, allowed)
    if problems:
        raise problems.error()
    complaint = trial(on_trial(fit, placed, state))
    if complaint:
        raise MigrateError(
            f"the repaired state_dict does not load: {complaint}",
            _WHERE,
            "a module of the model does something of its own when it loads; load it by hand",
        )
    entries = {
        name: _entry(placed[name], state) if name in placed else _own(slot)
        for name, slot in fit.slots.items()
        if name in placed or name in kept
    }
    return StateDict(entries, metadata)


def on_trial(fit: Fit, placed: Mapping[str, Piece], state: StateDict) -> Mapping[str, Any]:
    """Return the state_dict with tensors that have shapes and no values."""
    found: OrderedDict[str, Any] = OrderedDict()
    for name, slot in fit.slots.items():
        if name in placed:
            found[name] = made(placed[name], state.entries)
        elif not slot.is_tensor:
            found[name] = slot.value
        else:
            found[name] = torch.empty(slot.shape, dtype=slot.dtype, device="meta")
    return found


def _settle_clashes(
    fit: Fit, allowed: Allowed, placed: dict[str, Piece], kept: list[str], problems: Problems
) -> None:
    open_clashes: dict[str, dict[str, Clash]] = {"head": {}, "positions": {}, "": {}}
    for name, clash in fit.clashes.items():
        answer = getattr(allowed, clash.argument) if clash.argument else "error"
        if answer == "resize" and clash.offer is not None:
            placed[name] = clash.offer
        elif answer == "keep" or (answer == "error" and allowed.missing == "keep"):
            kept.append(name)
        else:
            open_clashes[clash.argument][name] = clash
    problems.add(
        "places of another number of classes",
        list(open_clashes["head"]),
        'build the model with as many classes, or leave the model\'s own: repair(head="keep")',
    )
    problems.add(
        "position embeddings of another grid",
        list(open_clashes["positions"]),
        'resize them as timm does: repair(positions="resize")',
    )
    problems.add(
        "shapes differ",
        list(open_clashes[""]),
        "build the model with the sizes it was trained with",
    )


def _entry(piece: Piece, state: StateDict) -> Entry:
    if piece.make is None:
        return state.entries[piece.sources[0]]
    make, sources = piece.make, [state.entries[s] for s in piece.sources]
    return Entry(piece.shape, piece.dtype, lambda: make([e.read() for e in sources]))


def _has_value(slot: Slot) -> bool:
    is_counter = slot.name.endswith("num_batches_tracked")
    return not isinstance(slot.value, torch.Tensor) or not slot.value.is_meta or is_counter


def _own(slot: Slot) -> Entry:
    """Return the model's own value, as it is when it is read."""
    value: Any = slot.value
    if not isinstance(value, torch.Tensor):
        return Entry((), torch.uint8, lambda: value)  # a layer's extra state is any object
    if value.is_meta:  # a counter: nothing was counted yet
        return entry_of(torch.zeros(slot.shape, dtype=slot.dtype))
    return entry_of(value.detach())
