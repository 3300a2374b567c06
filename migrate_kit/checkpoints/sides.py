"""The two sides of a load: what the model has room for, and what a checkpoint gives."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch.nn.parameter import is_lazy

from migrate_kit.checkpoints.state import entry_of
from migrate_kit.checkpoints.vocabulary import split_name, vocabulary, words_of
from migrate_kit.errors import MigrateError
from migrate_kit.results import few

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from migrate_kit.checkpoints.state import StateDict

    Make = Callable[[Sequence[torch.Tensor]], torch.Tensor]
    Shape = tuple[int, ...]
    Signature = tuple[tuple[str, Shape], ...]

# Layers of other libraries that are a linear layer, some with their weight the other way round.
_LINEAR = ("Linear", "Conv1D", "Dense")


@dataclass(frozen=True)
class Slot:
    """A place in the model: a parameter or buffer of its state_dict.

    ``family`` is linear, conv, embedding or empty; ``memory`` is equal for two names of one tensor;
    ``value`` is the model's own, and may be no tensor at all (``_extra_state``).
    """

    name: str
    shape: Shape
    dtype: torch.dtype
    family: str = ""
    memory: Hashable = None
    value: object = field(default=None, repr=False, compare=False)

    @property
    def is_tensor(self) -> bool:
        """False for what a layer saves beside its tensors."""
        return isinstance(self.value, torch.Tensor)


@dataclass(frozen=True)
class Piece:
    """A tensor that can be had from the checkpoint, under the name that the rules gave it.

    ``sources`` are the checkpoint's own names; ``make`` turns their tensors into this one (None:
    the only source as it is). ``rules`` and ``why`` say what was done, in order.
    """

    name: str
    shape: Shape
    dtype: torch.dtype
    sources: tuple[str, ...]
    make: Make | None = field(default=None, repr=False)
    rules: tuple[str, ...] = ()
    why: tuple[str, ...] = ()

    def renamed(self, name: str, rule: str, why: str) -> Piece:
        """Return the same tensor under another name."""
        return replace(self, name=name, rules=(*self.rules, rule), why=(*self.why, why))

    def turned(
        self, shape: Shape, turn: Callable[[torch.Tensor], torch.Tensor], rule: str, why: str
    ) -> Piece:
        """Return it with its values rearranged."""
        before = self.make

        def make(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
            return turn(tensors[0] if before is None else before(tensors))

        rules, whys = (*self.rules, rule), (*self.why, why)
        return replace(self, shape=shape, make=make, rules=rules, why=whys)


def made_of(name: str, shape: Shape, pieces: Sequence[Piece], make: Make, rule: str) -> Piece:
    """Return a piece made of several, whose own makers run first."""
    sources = [s for p in pieces for s in p.sources]

    def whole(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        parts, at = [], 0
        for piece in pieces:
            own = tensors[at : at + len(piece.sources)]
            parts.append(own[0] if piece.make is None else piece.make(own))
            at += len(piece.sources)
        return make(parts)

    rules = tuple(dict.fromkeys(r for p in pieces for r in p.rules))
    why = tuple(dict.fromkeys(w for p in pieces for w in p.why))
    return Piece(name, shape, pieces[0].dtype, tuple(sources), whole, (*rules, rule), why)


@dataclass(frozen=True)
class Group:
    """A layer of either side: its tensors by what the layer calls them.

    ``place`` is its rank in the side's order.
    """

    path: str
    place: int
    members: dict[str, str]
    signature: Signature

    @cached_property
    def _read(self) -> tuple[tuple[str, ...], tuple[int, ...]]:
        return words_of(self.path)

    @property
    def words(self) -> tuple[str, ...]:
        """The words in its path."""
        return self._read[0]

    @property
    def numbers(self) -> tuple[int, ...]:
        """The numbers in its path."""
        return self._read[1]

    @property
    def parent(self) -> str:
        """The path around it."""
        return self.path.rpartition(".")[0]

    @property
    def loose(self) -> Signature:
        """The signature where a convolution over its whole input is a linear layer."""
        return tuple((leaf, _flat(shape)) for leaf, shape in self.signature)


def slots_of(model: torch.nn.Module) -> dict[str, Slot]:
    """Return the places of a model, in the order of its state_dict.

    Raises
    ------
    MigrateError
        If a lazy layer has no shape yet.
    """
    state = model.state_dict(keep_vars=True)
    lazy = [n for n, v in state.items() if isinstance(v, torch.Tensor) and is_lazy(v)]
    if lazy:
        raise MigrateError(
            f"{len(lazy)} parameters of the model have no shape yet",
            few(lazy),
            "call the model once on an input: a lazy layer learns its shape from it",
        )
    layers = dict(model.named_modules(remove_duplicate=False))
    return {
        name: Slot(name, tuple(v.shape), v.dtype, _family(layers, name), _memory(v), v)
        if isinstance(v, torch.Tensor)
        else Slot(name, (), torch.uint8, "", None, v)
        for name, v in state.items()
    }


def pieces_of(state: StateDict) -> dict[str, Piece]:
    """Return the tensors of a checkpoint under their own names."""
    return {n: Piece(n, e.shape, e.dtype, (n,)) for n, e in state.entries.items()}


def groups_of(named: Iterable[tuple[str, Shape]], *, alone: bool = False) -> list[Group]:
    """Return the layers of one side, in its order; ``alone`` takes each tensor for a layer."""
    grouped: dict[str, dict[str, tuple[str, Shape]]] = {}
    for name, shape in named:
        path, leaf = (name, "") if alone else split_name(name)
        grouped.setdefault(path, {})[leaf] = (name, shape)
    found = []
    for place, (path, members) in enumerate(grouped.items()):
        names = {leaf: name for leaf, (name, _) in members.items()}
        shapes = [(_same_leaf(leaf), shape) for leaf, (_, shape) in members.items()]
        signature = tuple(sorted(s for s in shapes if not is_derived(s[0])))
        found.append(Group(path, place, names, signature))
    return found


def is_derived(name: str) -> bool:
    """Whether a tensor follows from the network's settings, so that a file may lack it."""
    leaf = name.rpartition(".")[2]
    return leaf in vocabulary("buffer") or leaf == "_extra_state"


def _same_leaf(leaf: str) -> str:
    return {"gamma": "weight", "beta": "bias"}.get(leaf, leaf)


def _flat(shape: Shape) -> Shape:
    return (shape[0], math.prod(shape[1:])) if len(shape) > 1 else shape


def _memory(tensor: torch.Tensor) -> Hashable:
    # On the meta device there is no memory to compare: there the object is the tensor.
    return entry_of(tensor).memory or id(tensor)


def _family(layers: dict[str, torch.nn.Module], name: str) -> str:
    layer = layers.get(split_name(name)[0])
    kind = type(layer).__name__
    if isinstance(layer, torch.nn.Embedding | torch.nn.EmbeddingBag) or "Embedding" in kind:
        return "embedding"
    if isinstance(layer, torch.nn.Linear) or kind.endswith(_LINEAR):
        return "linear"
    # _ConvNd has no public name; every convolution has these two.
    return "conv" if hasattr(layer, "kernel_size") and hasattr(layer, "groups") else ""
