"""What the caller handed over: a network and a checkpoint, or something else in their place."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from migrate_kit.checkpoints.checkpoint import Checkpoint
from migrate_kit.checkpoints.load import load_checkpoint
from migrate_kit.checkpoints.state import StateDict
from migrate_kit.errors import MigrateError
from migrate_kit.results import Finding, few, plain

if TYPE_CHECKING:
    from pathlib import Path

_CALL = "diagnose(model, checkpoint)"
# What training scripts call the network's own tensors, the likeliest first.
_LIKELY = ("state_dict", "model_state_dict", "model", "module", "net", "network", "params")
# What holds tensors of the training, not of the network.
_TRAINING = ("optim", "sched", "scaler", "grad", "loss", "callback")
_DEEPEST = 3


@dataclass
class Taken:
    """A checkpoint's tensors, where they lay, and what was noticed on the way to them.

    ``inside`` is the way to them in what was given: ``("state_dict",)``; ``path`` is their file,
    ``bare`` says that ``torch.load`` gives them just so, and ``part`` is which of the file's other
    sets they are.
    """

    state: StateDict
    inside: tuple[str, ...] = ()
    path: Path | None = None
    bare: bool = True
    findings: list[Finding] = field(default_factory=list)
    part: str = ""


def take_model(model: object, checkpoint: object) -> torch.nn.Module:
    """Return the network, or say what was given in its place.

    Raises
    ------
    MigrateError
        If it is no network.
    """
    if isinstance(model, torch.nn.Module):
        return model
    if isinstance(model, type) and issubclass(model, torch.nn.Module):
        raise MigrateError(
            f"the model is the class {model.__name__}, not a network of it",
            _CALL,
            f"build it first: model = {model.__name__}()",
        )
    if isinstance(model, tuple | list):
        raise _several(model)
    if isinstance(checkpoint, torch.nn.Module):
        raise MigrateError(
            f"the model is {_a(model)} and the checkpoint is a network: they are swapped",
            _CALL,
            "put the network first: diagnose(model, checkpoint)",
        )
    if isinstance(model, Mapping | Checkpoint | str | os.PathLike):
        raise _only_weights(model)
    if model is None:
        raise MigrateError(
            "the model is None", _CALL, "let the function that builds the model return it"
        )
    inner = next(
        (a for a in ("model", "module", "net") if isinstance(_get(model, a), torch.nn.Module)), None
    )
    raise MigrateError(
        f"the model is {_a(model)}, not a torch.nn.Module",
        _CALL,
        f"pass its network: model.{inner}" if inner else "pass the network itself",
    )


def take_checkpoint(checkpoint: object, slots: Mapping[str, object]) -> Taken:
    """Return the tensors of whatever holds them; of several sets, those whose names fit.

    Raises
    ------
    MigrateError
        If there are none.
    """
    if isinstance(checkpoint, str | os.PathLike):
        checkpoint = load_checkpoint(checkpoint)
    if isinstance(checkpoint, Checkpoint):
        return _from_file(checkpoint, slots)
    if isinstance(checkpoint, torch.nn.Module):
        what = f"the checkpoint is a network ({type(checkpoint).__name__}): its state_dict is taken"
        found = [Finding("info", what, _CALL)]
        return Taken(StateDict.of(checkpoint.state_dict()), findings=found)
    if isinstance(checkpoint, StateDict):
        # It came from load_checkpoint, which may have found it deep in a file.
        return Taken(checkpoint, bare=False)
    if isinstance(checkpoint, Mapping):
        return _from_mapping(checkpoint, slots)
    if isinstance(checkpoint, tuple | list):
        at = next((i for i, v in enumerate(checkpoint) if isinstance(v, Mapping)), None)
        fix = "pass a dict of tensors by name" if at is None else f"pass its element {at}"
        raise MigrateError(f"the checkpoint is {_a(checkpoint)}, not a state_dict", _CALL, fix)
    raise MigrateError(
        f"the checkpoint is {_a(checkpoint)}, not a state_dict",
        _CALL,
        "pass a file's path, a state_dict, or what mk.load_checkpoint returned",
    )


def _from_file(checkpoint: Checkpoint, slots: Mapping[str, object]) -> Taken:
    if not len(checkpoint.state_dict):
        what = f"the file holds {checkpoint.kind} and no tensors"
        raise _nothing(what, checkpoint.path.name)
    # Whether torch.load gives it without running anything.
    bare = checkpoint.format.startswith("torch") and not checkpoint.wanted
    taken = Taken(checkpoint.state_dict, checkpoint.inside, checkpoint.path, bare)
    taken.findings += [f for f in checkpoint.findings if f.level != "info"]

    def fits(state: StateDict) -> bool:
        return 2 * _known(state, slots) >= len(slots)

    # The reader chose by what the sets are called; the model's own names tell more.
    better = [name for name, part in checkpoint.parts.items() if fits(part)]
    if better and not fits(taken.state):
        taken.state, taken.bare, taken.inside = checkpoint.parts[better[0]], False, ()
        taken.part = better[0]
        what = f"of the sets of tensors in the file, {plain(better[0])} is taken: its names fit"
        fix = "for the file's main set: diagnose(model, mk.load_checkpoint(path).state_dict)"
        taken.findings.append(Finding("warning", what, checkpoint.path.name, fix))
    elif checkpoint.parts:
        what = f"the file holds other sets of tensors too: {few(checkpoint.parts)}"
        fix = f"diagnose(model, mk.load_checkpoint(path).parts[{next(iter(checkpoint.parts))!r}])"
        taken.findings.append(Finding("info", what, checkpoint.path.name, plain(fix)))
    return taken


def _from_mapping(mapping: Mapping[Any, Any], slots: Mapping[str, object]) -> Taken:
    if any(isinstance(key, type) for key in mapping) or not mapping:
        raise _nothing("the checkpoint is empty", _CALL)
    found = list(_sets(mapping, (), 0))
    if not found:
        raise _nothing(f"the checkpoint holds no tensors: {few(mapping, 6)}", _CALL)
    found.sort(key=lambda pair: _likelihood(pair[0], pair[1], slots), reverse=True)
    inside, state = found[0]
    taken = Taken(state, inside)
    if inside:
        way = "".join(f"[{key!r}]" for key in inside)
        taken.findings.append(
            Finding("info", f"the tensors lie in checkpoint{way}", plain(few(mapping, 6)))
        )
    others = [way for way, _ in found[1:] if way and not _is_training(way)]
    if others and inside:
        listed = ", ".join("".join(f"[{k!r}]" for k in way) for way in others[:3])
        what = f"the checkpoint holds other sets of tensors too: {plain(listed)}"
        fix = f"to take the first of them: diagnose(model, checkpoint{plain(listed.split(',')[0])})"
        taken.findings.append(Finding("info", what, "", fix))
    return taken


def _sets(value: Any, way: tuple[str, ...], depth: int) -> Any:
    """Yield the sets of tensors in nested mappings: the way there, and the tensors."""
    if isinstance(value, torch.nn.Module):
        value = value.state_dict()
    if isinstance(value, Checkpoint):
        value = value.state_dict
    if isinstance(value, StateDict):
        yield way, value
    elif isinstance(value, Mapping) and depth <= _DEEPEST:
        own = {str(k): _tensor(v) for k, v in value.items()}
        tensors = {k: v for k, v in own.items() if v is not None}
        if tensors and not (way and _is_training(way)):
            state = StateDict.of(tensors)
            metadata = getattr(value, "_metadata", None)
            yield way, StateDict(state.entries, metadata)
        for key, item in value.items():
            if not isinstance(item, torch.Tensor | np.ndarray):
                yield from _sets(item, (*way, str(key)), depth + 1)


def _tensor(value: Any) -> torch.Tensor | None:
    if isinstance(value, torch.Tensor):
        return value
    if not isinstance(value, np.ndarray):
        return None
    try:
        return torch.from_numpy(value if value.flags.writeable else value.copy())
    except (TypeError, ValueError):  # objects, texts, another machine's byte order
        return None


def _likelihood(
    way: tuple[str, ...], state: StateDict, slots: Mapping[str, object]
) -> tuple[Any, ...]:
    ends = {name.rpartition(".")[2] for name in slots}
    same = _known(state, slots)
    alike = sum(name.rpartition(".")[2] in ends for name in state)
    ranks = [_LIKELY.index(part) for part in way if part in _LIKELY]
    rank = min(ranks, default=len(_LIKELY))
    # Half of the network's tensors is a network; beyond that the name of the set decides.
    return (
        2 * same >= len(slots),
        2 * alike >= len(slots),
        -rank if len(way) else -rank + 0.5,
        alike,
        -len(way),
    )


def _known(state: StateDict, slots: Mapping[str, object]) -> int:
    """Return how many names are the model's, behind one word that all of them begin with."""
    below = {name.partition(".")[0] for name in state}
    as_they_are = sum(name in slots for name in state)
    if len(below) != 1:
        return as_they_are
    return max(as_they_are, sum(name.partition(".")[2] in slots for name in state))


def _is_training(way: tuple[str, ...]) -> bool:
    return any(word in part.lower() for part in way for word in _TRAINING)


def _several(model: tuple[Any, ...] | list[Any]) -> MigrateError:
    networks = [i for i, v in enumerate(model) if isinstance(v, torch.nn.Module)]
    form = type(model).__name__
    what = f"the model is a {form}: '{form}' object has no attribute 'load_state_dict'"
    if not networks:
        holds = few([type(v).__name__ for v in model])
        return MigrateError(f"{what}; no network is in it ({holds})", _CALL, "pass the network")
    at = networks[0]
    names = ", ".join("model" if i == at else "_" for i in range(len(model)))
    also = f"; so are {', '.join(map(str, networks[1:]))}" if networks[1:] else ""
    return MigrateError(
        what,
        f"element {at} is the network ({type(model[at]).__name__}){also}",
        f"unpack it where it is built: {names} = ..., or pass model[{at}]",
    )


def _only_weights(model: object) -> MigrateError:
    if isinstance(model, str | os.PathLike):
        what = f"the model is {_a(model)}, a path perhaps"
    else:
        kind = f"{type(model).__module__}.{type(model).__name__}".removeprefix("builtins.")
        what = f"the model is a state_dict: '{kind}' object has no attribute 'eval'"
    return MigrateError(
        f"{what}; weights alone cannot run",
        _CALL,
        "build the network first, model = Net(), then diagnose(model, state_dict)",
    )


def _nothing(what: str, where: str) -> MigrateError:
    return MigrateError(what, where, "save it with torch.save(model.state_dict(), path)")


def _a(value: object) -> str:
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def _get(value: object, name: str) -> object:
    try:
        return getattr(value, name, None)
    except Exception:  # noqa: BLE001 - a stranger's property
        return None
