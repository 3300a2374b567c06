"""What was saved: find the network's tensors among everything a pickle holds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from migrate_kit.checkpoints.formats.dangerous import dangerous
from migrate_kit.checkpoints.formats.numpy_objects import ArrayState
from migrate_kit.checkpoints.formats.pickles import Made
from migrate_kit.checkpoints.state import Contents, Entry, StateDict, one_name
from migrate_kit.errors import MigrateError
from migrate_kit.results import Finding, counted, few, plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from migrate_kit.checkpoints.formats.source import Source

# The keys under which training programs keep the network, the likeliest first.
_HOMES = (
    "state_dict", "model_state_dict", "model_state", "model", "net", "network", "module", "params",
    "weights", "params_ema", "ema", "ema_state_dict", "model_ema", "state_dict_ema", "generator",
)  # fmt: skip
# Of training, not of the network: never taken for it.
_TRAINING = ("optim", "sched", "scaler", "lr_", "amp", "callback", "loop", "hyper", "rng", "random")
# What trusted.py takes back once the code has run.
NOT_RUN = "none of it was run"
UNRUN = "its tensors were read without its code"
WOULD_HAVE_RUN = "loading it as a pickle would have run code that no weights need"
_CONTAINERS = (dict, list, tuple, Made, ArrayState)
_DEEPEST = 4
_MOST_NODES = 1_000_000


@dataclass
class _Part:
    """One place in a file that holds tensors."""

    path: tuple[str, ...]
    entries: dict[str, Entry]
    module: str = ""
    metadata: Any = None
    left: list[str] = field(default_factory=list)


def contents_of(tree: Any, source: Source, form: str, wanted: list[str]) -> Contents:
    """Return the network's tensors, and in words what else was saved.

    Raises
    ------
    MigrateError
        If there is no tensor in it.
    """
    tree = _opened(tree)
    parts = list(_parts(tree, (), _Budget()))
    network = [p for p in parts if not _of_training(p.path)]
    if not network:
        raise _no_tensors(tree, parts, source, dangerous(wanted))
    # A tensor or two beside all the others are a best accuracy or a random state.
    most = max(len(p.entries) for p in network)
    network = [p for p in network if 4 * len(p.entries) >= most or not p.left]
    # Values without dimensions are that too, however few tensors a small network has.
    network = [p for p in network if not p.left or any(e.shape for e in p.entries.values())] or (
        network
    )
    taken = min(network, key=_preference)
    root = len(network) > 1 and all(len(p.path) == 1 and not p.module for p in network)
    if root and not any(p.path[0] in _HOMES for p in network):
        # A dictionary of layers, each with its own arrays.
        entries = {f"{p.path[0]}.{n}": e for p in network for n, e in p.entries.items()}
        taken = _Part((), entries)
        network = [taken]
    others = [p for p in network if p is not taken]
    found = Contents(
        form,
        _kind(tree, taken, form),
        StateDict(taken.entries, taken.metadata),
        _extras(tree, taken),
        wanted=wanted,
    )
    found.inside = taken.path
    found.findings += _remarks(taken, others, wanted, source)
    found.parts = {".".join(p.path): StateDict(p.entries, p.metadata) for p in others}
    return found


class _Budget:
    """So many nodes are looked at: a pickle can hold itself, or everything many times over."""

    def __init__(self) -> None:
        self.left = _MOST_NODES
        self.seen: set[int] = set()

    def enter(self, node: Any) -> bool:
        """Whether to look into a node: once, and while any budget is left."""
        self.left -= 1
        if self.left < 0 or id(node) in self.seen:
            return False
        self.seen.add(id(node))
        return True


def _parts(node: Any, path: tuple[str, ...], budget: _Budget) -> Iterator[_Part]:
    """Yield every place that holds tensors by name, the outermost first."""
    node = _opened(node)
    if (alone := _entry(node)) is not None:
        yield _Part(path, {path[-1] if path else "tensor": alone})
        return
    if len(path) > _DEEPEST or not budget.enter(node):
        return
    if isinstance(node, Made):
        if module := _module(node):
            yield _Part(path, module, node.what)
        else:
            inside = node.attributes | {str(k): v for k, v in node.pairs}
            yield from _parts(inside, path, budget)
        return
    pairs = _pairs(node)
    if entries := _named(pairs):
        left = [str(k) for k, v in pairs if _entry(v) is None and v is not None]
        yield _Part(path, entries, metadata=_metadata(node), left=left)
    for key, value in pairs:
        if _entry(value) is None and isinstance(value, _CONTAINERS):
            yield from _parts(value, (*path, plain(str(key))[:100]), budget)


def _named(pairs: list[tuple[Any, Any]]) -> dict[str, Entry]:
    entries: dict[str, Entry] = {}
    for key, value in pairs:
        if (entry := _entry(value)) is not None:
            # As the file has it, whatever it is; only what shows a name makes it plain.
            if str(key) in entries:
                raise one_name(key)
            entries[str(key)] = entry
    return entries


def _opened(node: Any) -> Any:
    """Return what an array of objects holds: NumPy wraps a dict into one without dimensions."""
    if not isinstance(node, ArrayState) or node.array is not None:
        return node
    return node.objects[0] if len(node.objects) == 1 else node.objects


def _pairs(node: Any) -> list[tuple[Any, Any]]:
    if isinstance(node, dict):
        return list(node.items())
    if isinstance(node, list | tuple):
        return list(enumerate(node))
    return []


def _entry(node: Any) -> Entry | None:
    if isinstance(node, Entry):
        return node
    return node.entry() if isinstance(node, ArrayState) else None


def _metadata(node: Any) -> Any:
    found = getattr(node, "_metadata", None)
    return found if isinstance(found, dict) else None


def _module(root: Made) -> dict[str, Entry]:
    """Return the state_dict of a pickled module, from the dictionaries of its layers.

    ``nn.Module`` keeps _parameters, _buffers and _modules; TorchScript keeps them all as plain
    attributes.
    """
    entries: dict[str, Entry] = {}
    stack: list[tuple[Made, str]] = [(root, "")]
    seen: set[int] = set()
    while stack:
        node, prefix = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        own = node.attributes
        script = node.what.startswith("__torch__")
        if not script and not isinstance(own.get("_parameters"), dict):
            continue
        fleeting = own.get("_non_persistent_buffers_set")
        fleeting = fleeting if isinstance(fleeting, list) else []
        homes = [own] if script else [own.get(k) for k in ("_parameters", "_buffers")]
        for home in homes:
            for name, value in home.items() if isinstance(home, dict) else ():
                if (entry := _entry(value)) is not None and name not in fleeting:
                    entries[f"{prefix}{name}"] = entry
        children = own if script else own.get("_modules")
        below = [
            (child, f"{prefix}{name}.")
            for name, child in (children.items() if isinstance(children, dict) else ())
            if isinstance(child, Made)
        ]
        stack += reversed(below)
    return entries


def _of_training(path: tuple[str, ...]) -> bool:
    return any(key.lower().startswith(_TRAINING) for key in path)


def _preference(part: _Part) -> tuple[int, int, int]:
    """Return a key that is smallest for the network: by name, then by the number of tensors."""
    names = [_HOMES.index(key) for key in part.path if key in _HOMES]
    known = min(names) if names else len(_HOMES) * bool(part.path)
    return (known, len(part.path), -len(part.entries))


def _kind(tree: Any, taken: _Part, form: str) -> str:
    keys = {str(k) for k, _ in _pairs(tree)}
    if form == "TorchScript":
        return "TorchScript"
    if "pytorch-lightning_version" in keys:
        return "Lightning checkpoint"
    meta = tree.get("meta") if isinstance(tree, dict) else None
    if isinstance(meta, dict) and any(str(k).startswith(("mmengine", "mmcv")) for k in meta):
        return "MMEngine checkpoint"
    if isinstance(tree, Made):
        return "whole module"
    if taken.path:
        return "training checkpoint"
    names = {dict: "state_dict", list: "list of tensors", tuple: "list of tensors"}
    return next((name for kind, name in names.items() if isinstance(tree, kind)), "tensor")


def _extras(tree: Any, taken: _Part) -> dict[str, str]:
    """Say in words what lies around the network."""
    extras: dict[str, str] = {}
    node = tree
    for depth, key in enumerate(("", *taken.path)):
        if depth:
            node = next((v for k, v in _pairs(node) if plain(str(k))[:100] == key), None)
        inner = (*taken.path, None)[depth]
        for k, value in _pairs(node):
            name = plain(str(k))[:100]
            if name == inner or str(k) in taken.entries or not isinstance(node, dict):
                continue
            if inner is None and isinstance(value, dict | list | tuple | Made):
                continue  # the layers of a dictionary of layers
            extras[".".join((*taken.path[:depth], name))] = _words(value)
    return extras


def _words(value: Any) -> str:
    if (entry := _entry(value)) is not None:
        return f"tensor {entry.shape}" if entry.shape else _single(entry)
    if isinstance(value, str | int | float | bool | bytes | None):
        return plain(str(value))[:80]
    if isinstance(value, Made):
        return plain(value.what)
    parts = list(_parts(value, (), _Budget()))
    tensors = sum(len(p.entries) for p in parts)
    return counted(tensors, "tensor") if tensors else f"{len(_pairs(value))} entries"


def _single(entry: Entry) -> str:
    """Return the value of a tensor without dimensions, such as a best accuracy."""
    try:
        value = entry.read().item()
    except (MigrateError, RuntimeError, ValueError, TypeError):
        return "tensor ()"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _remarks(taken: _Part, others: list[_Part], wanted: list[str], source: Source) -> list[Finding]:
    found = []
    where = source.path.name
    if taken.module.startswith("__torch__"):
        found.append(
            Finding(
                "info",
                f"TorchScript of {taken.module.rpartition('.')[2]}; {UNRUN}",
                where,
                "build the network from its source and load this state_dict; torch.jit.load runs "
                "the code",
            )
        )
        wanted = [name for name in wanted if not name.startswith("__torch__")]
    elif taken.module:
        found.append(
            Finding(
                "warning",
                f"the file holds the whole module {taken.module}, not a state_dict; {UNRUN}",
                where,
                "build the network from its source and load this state_dict into it",
            )
        )
    if bad := dangerous(wanted):
        found.append(
            Finding(
                "warning",
                f"{WOULD_HAVE_RUN}: {few(bad, 6)}; {NOT_RUN}",
                where,
                "do not trust this file, and do not load it with torch.load(weights_only=False) or "
                "pickle; ask its maker what it is for",
            )
        )
        wanted = [name for name in wanted if name not in bad]
    if wanted:
        fix = "the tensors are complete without it"
        if not bad:
            fix += (
                "; where you trust the file and need the objects, load_checkpoint(path, trust=True)"
            )
        found.append(
            Finding(
                "warning" if taken.module else "info",
                f"the pickle asks for code beyond tensors: {few(wanted, 6)}; {NOT_RUN}",
                where,
                fix,
            )
        )
    if others:
        names = few([".".join(p.path) or "the top" for p in others], 5)
        chosen = ".".join(taken.path) or "the tensors at the top"
        verb = "was" if taken.path else "were"
        found.append(
            Finding(
                "info",
                f"more than one set of tensors: {chosen} {verb} taken; also {names}",
                where,
                "take another with checkpoint.parts[name]",
            )
        )
    return found


def _no_tensors(tree: Any, parts: list[_Part], source: Source, bad: list[str]) -> MigrateError:
    if bad:
        return MigrateError(
            f"no tensors of a network in the file, and {WOULD_HAVE_RUN}: {few(bad, 6)}",
            str(source.path),
            "do not trust this file, and do not load it with torch.load(weights_only=False) or "
            "pickle; none of it was run here",
        )
    if parts:
        holds = "only the state of an optimizer or of training"
        fix = "look for the file of the weights beside it"
    elif isinstance(tree, Made):
        holds, fix = f"an object of {tree.what} without parameters", "save model.state_dict()"
    elif isinstance(tree, dict):
        holds = f"a dict with {few(tree)}"
        fix = "save model.state_dict()"
    else:
        holds, fix = f"a {type(tree).__name__}", "save model.state_dict()"
    return MigrateError(
        f"no tensors of a network in the file: it holds {holds}", str(source.path), fix
    )
