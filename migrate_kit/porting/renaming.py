"""What a checkpoint's tensors are called on the other side: by the model's layers, or by name."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from migrate_kit.errors import MigrateError
from migrate_kit.porting.rules import class_names, moves_by_name, rename
from migrate_kit.results import Finding, counted, few

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import nn

    from migrate_kit.checkpoints.state import Entry
    from migrate_kit.porting.rules import Kinds
    from migrate_kit.results import Level

# What torch's wrappers put before every name: DataParallel, torch.compile.
_WRAPPERS = ("module.", "_orig_mod.")
_COUNTER = "num_batches_tracked"
_STATISTICS = {"running_mean": "moving_mean", "running_var": "moving_variance"}
_AFFINE = {"weight": "gamma", "bias": "beta"}


class Renamed(NamedTuple):
    """One tensor under both names; ``transform`` is that of the table of layers."""

    torch_name: str
    name: str
    transform: str = "identity"


class Names:
    """The names on the other side, what has none, and what could not be told."""

    def __init__(self) -> None:
        self.renamed: list[Renamed] = []
        self.dropped: list[str] = []
        self.findings: list[Finding] = []

    def say(self, level: Level, what: str, names: Iterable[str], fix: str) -> None:
        """Add a finding about some tensors; none is said about none."""
        if names := list(names):
            text = f"{counted(len(names), 'tensor')} {what}"
            self.findings.append(Finding(level, text, few(names), fix))


def kinds_of_all(model: nn.Module) -> dict[str, tuple[str, ...]]:
    """Return the class names of every layer by path, a shared layer under each of its paths."""
    layers = model.named_modules(remove_duplicate=False)
    return {path: class_names(layer) for path, layer in layers}


def unwrapped(names: Iterable[str], known: Iterable[str] = ()) -> str:
    """Return the prefix that a wrapper of torch's put before all names, or nothing.

    Examples
    --------
    >>> unwrapped(["module._orig_mod.fc.weight", "module._orig_mod.fc.bias"])
    'module._orig_mod.'
    >>> unwrapped(["module.weight"], known=["module.weight"])
    ''
    """
    names, known, prefix = list(names), set(known), ""
    while names and not known.intersection(names):
        found = next((w for w in _WRAPPERS if all(n.startswith(w) for n in names)), "")
        if not found:
            break
        prefix += found
        names = [name.removeprefix(found) for name in names]
    return prefix


def to_mindspore(
    entries: Mapping[str, Entry],
    model: nn.Module | None = None,
    given: Mapping[str, str | None] | None = None,
) -> Names:
    """Return MindSpore's names for a torch checkpoint's tensors.

    Parameters
    ----------
    entries : mapping of str to Entry
        Names and shapes; no value is read.
    model : torch.nn.Module, optional
        Its layers' types tell what their names do not; it may be on the meta device.
    given : mapping of str to str or None, optional
        Names that are not left to the rules; None leaves a tensor out.
    """
    given, found = given or {}, Names()
    _refuse_unknown(given, entries)
    own = model.state_dict(keep_vars=True) if model is not None else {}
    prefix = unwrapped(entries, own)
    short = {name: name.removeprefix(prefix) for name in entries}
    if prefix:
        found.say("info", f"named without the wrapper's prefix {prefix!r}", entries, "")
    kinds = kinds_of_all(model) if model is not None else {}
    rest = {short[n]: e for n, e in entries.items() if short[n] not in own and n not in given}
    by_name = _by_name(rest, found)
    for name in entries:
        known = short[name] in own
        move = by_layer(short[name], kinds) if known else by_name.get(short[name])
        if name in given:
            new = given[name]
            move = Renamed(name, new, move.transform if move else "identity") if new else None
        if move is None:
            found.dropped.append(name)
        else:
            found.renamed.append(move._replace(torch_name=name))
    if model is not None:
        _compare({n: e for n, e in entries.items() if n not in given}, short, own, found)
    _refuse_twice([(move.torch_name, move.name) for move in found.renamed])
    return found


def by_layer(name: str, kinds: Kinds) -> Renamed | None:
    """Return what the usual cell for a layer calls its tensor; None where it keeps none.

    Examples
    --------
    >>> by_layer("conv.weight", {"conv": ["Conv1d"]})
    Renamed(torch_name='conv.weight', name='conv.weight', transform='unsqueeze(2)')
    >>> by_layer("bn.num_batches_tracked", {"bn": ["BatchNorm2d"]})
    """
    if moves_by_name([name], [], kinds)[0].transform == "drop":
        return None
    move = moves_by_name([name], rename(name, kinds)[:1], kinds)[0]
    return Renamed(name, move.cell_name, move.transform)


def _by_name(entries: Mapping[str, Entry], found: Names) -> dict[str, Renamed]:
    """Return the names that names and shapes alone tell, and say what they do not."""
    norms: list[str] = []
    unsure: dict[int, list[str]] = defaultdict(list)
    moves = {}
    for path, leaves in _grouped(entries).items():
        shapes = {leaf: entries[name].shape for leaf, name in leaves.items()}
        batch = _STATISTICS.keys() <= shapes.keys()
        shape = shapes.get("weight", ())
        pair = len(shape) == 1 and shapes.get("bias") == shape
        for leaf, name in leaves.items():
            new = leaf
            if batch and leaf == _COUNTER:
                continue
            if batch and leaf in _STATISTICS:
                new = _STATISTICS[leaf]
            elif (batch or pair) and leaf in _AFFINE:
                new = _AFFINE[leaf]
                norms += [] if batch else [name]
            elif leaf == "weight" and (len(shape) in (1, 3) or (len(shape) == 2 and not pair)):
                bias = "bias" in shapes
                unsure[0 if len(shape) == 2 and bias else len(shape)].append(name)
            moves[name] = Renamed(name, f"{path}.{new}" if path else new)
    cure = "give the network as model=; its layers' types tell"
    found.say("info", "taken for LayerNorm's or GroupNorm's by their shape", norms, cure)
    for length, what in (
        (1, "kept as weight: PReLU's would be w, and LayerNorm's without a bias gamma"),
        (2, "kept as weight: Embedding's would be embedding_table"),
        (3, "kept in three dimensions: Conv1d's has four in MindSpore"),
    ):
        found.say("warning", what, unsure[length], cure)
    if any(len(e.shape) == 5 for e in entries.values()):
        wide = [name for name in moves if name.endswith("running_mean")]
        found.say("warning", "may be BatchNorm3d's, whose names have bn2d in them", wide, cure)
    return moves


def _grouped(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the names by their layer's path and then by their last part."""
    groups: dict[str, dict[str, str]] = defaultdict(dict)
    for name in names:
        path, _, leaf = name.rpartition(".")
        groups[path][leaf] = name
    return groups


def to_torch(entries: Mapping[str, Entry], model: nn.Module | None = None) -> list[Renamed]:
    """Return torch's names for a MindSpore checkpoint's tensors; see :func:`to_mindspore`.

    Where the model ties two weights and the file has one, it gets both names.
    """
    moves = _back_by_layer(entries, model) if model is not None else []
    done = {move.name for move in moves}
    rest = [name for name in entries if name not in done]
    for path, leaves in _grouped(rest).items():
        batch = leaves.keys() >= set(_STATISTICS.values())
        norm = batch or leaves.keys() >= set(_AFFINE.values())
        back = {"embedding_table": "weight"}
        back |= {new: old for old, new in _AFFINE.items()} if norm else {}
        back |= {new: old for old, new in _STATISTICS.items()} if batch else {}
        for leaf, name in leaves.items():
            old = back.get(leaf, leaf)
            moves.append(Renamed(f"{path}.{old}" if path else old, name))
    _refuse_twice([(move.name, move.torch_name) for move in moves])
    # In the order of the file.
    place = {name: index for index, name in enumerate(entries)}
    return sorted(moves, key=lambda move: place[move.name])


def _back_by_layer(entries: Mapping[str, Entry], model: nn.Module) -> list[Renamed]:
    own, kinds = model.state_dict(keep_vars=True), kinds_of_all(model)
    wanted = {name: by_layer(name, kinds) for name in own}
    moves = [move for move in wanted.values() if move and move.name in entries]
    there = {id(own[move.torch_name]): move for move in moves}
    for name, tensor in own.items():
        move, twin = wanted[name], there.get(id(tensor))
        if move and twin and move.name not in entries:
            moves.append(Renamed(name, twin.name, twin.transform))
    return moves


def _compare(
    entries: Mapping[str, Entry], short: Mapping[str, str], own: Mapping[str, object], found: Names
) -> None:
    """Say where the checkpoint and the model are not of one network."""
    fix = "check that it is the network of this checkpoint; mk.diagnose says why"
    there = set(short.values())
    unknown = [name for name in entries if short[name] not in own]
    found.say("warning", "not in the model, named by their names alone", unknown, fix)
    missing = [name for name in own if name not in there and not name.endswith(_COUNTER)]
    found.say("warning", "of the model not in the checkpoint", missing, fix)
    other = [
        name
        for name, entry in entries.items()
        if short[name] in own and tuple(getattr(own[short[name]], "shape", ())) != entry.shape
    ]
    found.say("warning", "of another shape than in the model", other, fix)


def _refuse_unknown(given: Mapping[str, str | None], entries: Mapping[str, Entry]) -> None:
    unknown = [name for name in given if name not in entries]
    if unknown:
        raise MigrateError(
            f"{counted(len(unknown), 'name')} of no tensor: {few(unknown)}",
            "names=",
            f"its keys are the checkpoint's names, such as {few(entries, 2)}",
        )


def _refuse_twice(names: Iterable[tuple[str, str]]) -> None:
    """Refuse two tensors that would get one name; pairs of (before, after)."""
    seen: dict[str, str] = {}
    for before, after in names:
        if after in seen:
            raise MigrateError(
                f"two tensors would be called {few([after])}",
                few([seen[after], before]),
                "give the network as model=, or one of the two another name with names=",
            )
        seen[after] = before
