"""Read a pickle without running any of it.

A pickle is a program: it names functions and has them called. Here every name stands for itself:
what the file wants called becomes a :class:`Made`, which remembers the name and what it was given.
Only the constructors of tensors, arrays and plain containers are carried out, by our own code.
"""

from __future__ import annotations

import pickle
import struct
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from migrate_kit.results import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from migrate_kit.checkpoints.formats.source import Stream

_MOST_TUPLE = 64


class UnsoundPickleError(ValueError):
    """A pickle that contradicts itself, or asks for what no checkpoint needs."""


@dataclass(frozen=True)
class Wanted:
    """A function or class that the file names; it is neither imported nor called."""

    name: str


@dataclass(eq=False, repr=False)
class Made:
    """What calling something of the file's would have made.

    Attributes
    ----------
    what : str
        The dotted name of the class or function.
    args : tuple
    state : object
        What ``__setstate__`` would have been given; a module's ``__dict__``.
    items : list
        What would have been appended.
    pairs : list of tuple
        Keys and values that would have been set.
    """

    what: str
    args: tuple[Any, ...] = ()
    state: Any = None
    items: list[Any] = field(default_factory=list)
    pairs: list[tuple[Any, Any]] = field(default_factory=list)

    def __repr__(self) -> str:
        # Not what it holds: that may be without end.
        return f"<{self.what}>"

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes that its state would have set."""
        found: dict[str, Any] = {}
        # (__dict__, __slots__) is the second form that pickle knows of a state.
        for part in self.state if isinstance(self.state, tuple) else (self.state,):
            if isinstance(part, dict):
                found.update((k, v) for k, v in part.items() if isinstance(k, str))
        return found


@dataclass(frozen=True)
class Known:
    """A constructor that our own code carries out."""

    name: str
    call: Callable[..., Any]


def _ordered_dict(*args: Any) -> OrderedDict[Any, Any]:
    # Python 2 hands the pairs to the constructor.
    found: OrderedDict[Any, Any] = OrderedDict()
    for pair in args[0] if args and isinstance(args[0], list | tuple) else ():
        if not (isinstance(pair, list | tuple) and len(pair) == 2):
            raise UnsoundPickleError("an OrderedDict of something other than pairs")
        found[_key(pair[0])] = pair[1]
    return found


def _set(*args: Any) -> list[Any]:
    # Kept as a list: its members may be anything, and nobody looks one up.
    return list(args[0]) if args and isinstance(args[0], list | tuple) else []


def _encode(text: Any = "", encoding: Any = "latin1", *_: Any) -> bytes:
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1", "utf-8", "ascii"):
        raise UnsoundPickleError("bytes in an unknown encoding")
    return text.encode(encoding)


def _bytes(*args: Any) -> bytes:
    return bytes(args[0]) if args and isinstance(args[0], bytes | bytearray) else b""


_PLAIN: dict[str, Callable[..., Any]] = {
    "collections.OrderedDict": _ordered_dict,
    "collections.defaultdict": lambda *_: {},
    "collections.Counter": lambda *a: dict(a[0]) if a and isinstance(a[0], dict) else {},
    "collections.deque": _set,
    "_codecs.encode": _encode,
}
for _home in ("builtins", "__builtin__"):
    _PLAIN |= {
        f"{_home}.set": _set,
        f"{_home}.frozenset": _set,
        f"{_home}.list": _set,
        f"{_home}.dict": lambda *_: {},
        f"{_home}.bytearray": _bytes,
        f"{_home}.bytes": _bytes,
    }


def _key(value: Any) -> Any:
    """Return a key of a dict if hashing it is cheap; a nested tuple can cost for ever."""
    parts = value if isinstance(value, tuple) and len(value) <= _MOST_TUPLE else (value,)
    for part in parts:
        if isinstance(part, int) and not -(1 << 63) <= part < 1 << 63:
            raise UnsoundPickleError("a key that is a number of more than 64 bits")
        if not isinstance(part, str | bytes | int | float | Wanted | Known | None):
            # A set of tensors, say; it is named by what it is.
            return f"<{type(part).__name__}>"
    return value


# The one in Python: the one in C cannot be told what a step does.
_Reader: Any = pickle._Unpickler  # noqa: SLF001


class Unpickler(_Reader):  # type: ignore[misc]
    """Python's own reader, in Python, with every step that would run something replaced.

    Parameters
    ----------
    file : Stream
    known : mapping of str to callable
        Constructors, by dotted name, that are carried out, beside the plain containers.
    persistent : callable, optional
        What a persistent id stands for; without it one is refused.
    """

    dispatch: ClassVar[dict[int, Callable[..., None]]] = dict(_Reader.dispatch)

    def __init__(
        self,
        file: Stream,
        known: Mapping[str, Callable[..., Any]],
        persistent: Callable[[Any], Any] | None = None,
    ) -> None:
        # latin1: what Python 2 wrote as str is text or bytes, and both survive.
        super().__init__(file, encoding="latin1")
        self._known = _PLAIN | dict(known)
        self._persistent = persistent
        self._length = file.length
        self.wanted: dict[str, None] = {}

    def find_class(self, module: str, name: str) -> Any:
        """Return what stands for a name; nothing is imported."""
        dotted = plain(f"{module}.{name}")[:200]
        if dotted in self._known:
            return Known(dotted, self._known[dotted])
        self.wanted[dotted] = None
        return Wanted(dotted)

    def persistent_load(self, pid: Any) -> Any:
        """Return what a persistent id stands for."""
        if self._persistent is None:
            raise UnsoundPickleError("it refers to something outside of itself")
        return self._persistent(pid)

    def get_extension(self, code: int) -> None:
        """Refuse the registry of extensions: it depends on the process."""
        raise UnsoundPickleError(f"extension {code}")

    def _instantiate(self, klass: Any, args: Any) -> None:
        self.append(self._made(klass, args))

    def _made(self, what: Any, args: Any) -> Any:
        if not isinstance(args, tuple | list):
            raise UnsoundPickleError("arguments that are no tuple")
        if isinstance(what, Known):
            return what.call(*args)
        if isinstance(what, Wanted):
            return Made(what.name, tuple(args))
        raise UnsoundPickleError(f"it calls a {type(what).__name__}")

    def _reduce(self) -> None:
        args = self.stack.pop()
        self.stack[-1] = self._made(self.stack[-1], args)

    def _new_object_ex(self) -> None:
        # The keyword arguments: no constructor that is carried out takes any.
        self.stack.pop()
        self._reduce()

    def _build(self) -> None:
        state = self.stack.pop()
        made = self.stack[-1]
        if isinstance(made, Made):
            made.state = state
        elif hasattr(made, "set_state"):
            made.set_state(state)
        elif isinstance(made, OrderedDict) and isinstance(state, dict):
            made.__dict__.update((k, v) for k, v in state.items() if k == "_metadata")

    def _set_pairs(self, target: Any, items: list[Any]) -> None:
        pairs = list(zip(items[::2], items[1::2], strict=True))
        if isinstance(target, dict):
            target.update((_key(k), v) for k, v in pairs)
        elif isinstance(target, Made):
            target.pairs += pairs
        else:
            raise UnsoundPickleError(f"it sets an item of a {type(target).__name__}")

    def _set_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._set_pairs(self.stack[-1], [key, value])

    def _set_items(self) -> None:
        items = self.pop_mark()
        self._set_pairs(self.stack[-1], items)

    def _dict(self) -> None:
        items = self.pop_mark()
        self.append({})
        self._set_pairs(self.stack[-1], items)

    def _extend(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, list):
            target += items
        elif isinstance(target, Made):
            target.items += items
        else:
            raise UnsoundPickleError(f"it appends to a {type(target).__name__}")

    def _append(self) -> None:
        value = self.stack.pop()
        self._extend([value])

    def _appends(self) -> None:
        self._extend(self.pop_mark())

    def _list_of_marked(self) -> None:
        items = self.pop_mark()  # which changes where append goes
        self.append(items)

    def _empty(self) -> None:
        self.append([])

    def _byte_array(self) -> None:
        # Python's own makes the array before it looks whether the file is that long.
        length = int.from_bytes(self.read(8), "little")
        if length > self._length:
            raise UnsoundPickleError("bytes longer than the file")
        self.append(bytes(self.read(length)))

    def _next_buffer(self) -> None:
        raise UnsoundPickleError("it needs buffers that are not in the file")


_REPLACED: dict[bytes, Callable[..., None]] = {
    pickle.REDUCE: Unpickler._reduce,  # noqa: SLF001
    pickle.NEWOBJ: Unpickler._reduce,  # noqa: SLF001
    pickle.NEWOBJ_EX: Unpickler._new_object_ex,  # noqa: SLF001
    pickle.BUILD: Unpickler._build,  # noqa: SLF001
    pickle.SETITEM: Unpickler._set_item,  # noqa: SLF001
    pickle.SETITEMS: Unpickler._set_items,  # noqa: SLF001
    pickle.DICT: Unpickler._dict,  # noqa: SLF001
    pickle.APPEND: Unpickler._append,  # noqa: SLF001
    pickle.APPENDS: Unpickler._appends,  # noqa: SLF001
    pickle.EMPTY_SET: Unpickler._empty,  # noqa: SLF001
    pickle.ADDITEMS: Unpickler._appends,  # noqa: SLF001
    pickle.FROZENSET: Unpickler._list_of_marked,  # noqa: SLF001
    pickle.BYTEARRAY8: Unpickler._byte_array,  # noqa: SLF001
    pickle.NEXT_BUFFER: Unpickler._next_buffer,  # noqa: SLF001
    pickle.READONLY_BUFFER: Unpickler._next_buffer,  # noqa: SLF001
}
Unpickler.dispatch.update({code[0]: method for code, method in _REPLACED.items()})


# What Python's reader raises on bytes that are no pickle.
_DAMAGE = (
    pickle.UnpicklingError, UnsoundPickleError, ArithmeticError, AttributeError, EOFError,
    LookupError, MemoryError, RecursionError, TypeError, ValueError, struct.error,
)  # fmt: skip


def read_pickle(
    file: Stream,
    known: Mapping[str, Callable[..., Any]],
    persistent: Callable[[Any], Any] | None = None,
) -> tuple[Any, list[str]]:
    """Return what the next pickle of a stream holds, and the names it wanted beyond the known.

    Raises
    ------
    UnsoundPickleError
        If it is no pickle or a damaged one.
    """
    reader = Unpickler(file, known, persistent)
    try:
        found = reader.load()
    except _DAMAGE as error:
        text = plain(str(error))[:200]
        raise UnsoundPickleError(f"{type(error).__name__}: {text}") from error
    return found, list(reader.wanted)
