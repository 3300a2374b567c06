"""Tensors that stay in their file until they are asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from migrate_kit.errors import MigrateError
from migrate_kit.results import counted, few

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from migrate_kit.results import Finding


@dataclass(frozen=True)
class Entry:
    """One tensor of a file: what it is, and how to read it.

    Attributes
    ----------
    shape : tuple of int
    dtype : torch.dtype
    read : callable
        Returns the tensor, on the CPU; most map the file's memory and copy nothing.
    memory : hashable, optional
        Equal for two entries that show the same memory in the same shape and dtype: tied weights.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    read: Callable[[], torch.Tensor] = field(repr=False, compare=False)
    memory: Hashable = field(default=None, repr=False)

    @property
    def nbytes(self) -> int:
        """The bytes of its values."""
        count = 1
        for length in self.shape:
            count *= length
        return count * self.dtype.itemsize


def entry_of(tensor: torch.Tensor) -> Entry:
    """Return the entry of a tensor that is there already; one on the meta device is fine."""
    memory = None
    if tensor.layout == torch.strided and tensor.device.type != "meta":
        storage = tensor.untyped_storage()
        if storage.nbytes():
            # Two tensors of one place are the same only if they show it alike.
            bits = (tensor.is_conj(), tensor.is_neg())
            place = (str(tensor.device), storage.data_ptr(), tensor.storage_offset())
            memory = (*place, tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype, *bits)
    return Entry(tuple(tensor.shape), tensor.dtype, lambda: tensor, memory)


class StateDict(Mapping[str, torch.Tensor]):
    """A state_dict whose tensors stay in their file until they are asked for.

    It goes wherever a state_dict goes: ``model.load_state_dict(state)``, ``dict(state)``. A tensor
    that is changed does not change the file.

    Parameters
    ----------
    entries : mapping of str to Entry
    metadata : mapping, optional
        PyTorch's ``_metadata``: the version of each module's part.

    Attributes
    ----------
    entries : dict of str to Entry
        Names, shapes and dtypes, without reading a tensor.

    Examples
    --------
    >>> state = StateDict.of({"fc.weight": torch.zeros(10, 4), "fc.bias": torch.zeros(10)})
    >>> state
    StateDict(2 tensors, 50 values, 200 B)
    >>> state.entries["fc.weight"].shape
    (10, 4)
    >>> state["fc.bias"].sum()
    tensor(0.)
    """

    def __init__(self, entries: Mapping[str, Entry], metadata: Any = None) -> None:
        self.entries = dict(entries)
        if metadata is not None:
            # load_state_dict looks for it under this name.
            self._metadata = metadata

    @classmethod
    def of(cls, state_dict: Mapping[str, torch.Tensor]) -> StateDict:
        """Return any mapping of tensors as a StateDict; what is no tensor is left out.

        Raises
        ------
        MigrateError
            If two tensors would have one name, such as under the keys 1 and "1".
        """
        if isinstance(state_dict, StateDict):
            return state_dict
        tensors: dict[str, torch.Tensor] = {}
        for key, value in state_dict.items():
            if isinstance(value, torch.Tensor):
                if str(key) in tensors:
                    raise one_name(key)
                tensors[str(key)] = value
        entries = {name: entry_of(tensor) for name, tensor in tensors.items()}
        return cls(entries, getattr(state_dict, "_metadata", None))

    def renamed(self, names: Mapping[str, str]) -> StateDict:
        """Return the same tensors under new names; one without a new name is left out."""
        return StateDict({names[k]: e for k, e in self.entries.items() if k in names})

    def __getitem__(self, name: str) -> torch.Tensor:
        return self.entries[name].read()

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, name: object) -> bool:
        # Mapping's own would read the tensor to find out.
        return name in self.entries

    @property
    def nbytes(self) -> int:
        """The bytes of all values; tied ones count once."""
        own = {e.memory or id(e): e.nbytes for e in self.entries.values()}
        return sum(own.values())

    def __repr__(self) -> str:
        values = sum(e.nbytes // e.dtype.itemsize for e in self.entries.values())
        size = size_text(self.nbytes)
        return f"StateDict({counted(len(self), 'tensor')}, {values:,} values, {size})"


@dataclass
class Contents:
    """What a reader found in a file.

    Attributes
    ----------
    format : str
        The file's format, such as ``safetensors``.
    kind : str
        What it holds, such as ``training checkpoint``.
    state_dict : StateDict
        The network's tensors.
    extras : dict of str to str
        What else is in there, in words: ``{"optimizer": "83 tensors", "epoch": "17"}``.
    findings : list of Finding
    wanted : list of str
        Code beyond tensors that the file asks for and that was not run.
    inside : tuple of str
        The way to the network's tensors in what was saved: ``("state_dict",)``.
    parts : dict of str to StateDict
        Other sets of tensors in the file, such as an EMA, by their place.
    """

    format: str
    kind: str
    state_dict: StateDict
    extras: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
    wanted: list[str] = field(default_factory=list)
    inside: tuple[str, ...] = ()
    parts: dict[str, StateDict] = field(default_factory=dict)


def one_name(key: object) -> MigrateError:
    """Return the error of two keys that are one text, such as 1 and "1"."""
    return MigrateError(
        f"two tensors would have the name {few([key])}",
        "state_dict",
        "give every tensor a key that is a text, and another one",
    )


def size_text(count: int) -> str:
    """Return a number of bytes in words, decimal units.

    Examples
    --------
    >>> size_text(248_007_048)
    '248 MB'
    """
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"


def dtypes_text(entries: Iterable[Entry]) -> str:
    """Return the dtypes in words, the commonest first.

    Examples
    --------
    >>> dtypes_text([entry_of(torch.zeros(2)), entry_of(torch.ones(1).half())])
    'float32 (1), float16 (1)'
    """
    counts = Counter(str(e.dtype).removeprefix("torch.") for e in entries)
    return ", ".join(f"{name} ({n})" for name, n in counts.most_common())
