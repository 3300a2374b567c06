"""Which operators a model runs, on which dtypes, from which line: what an NPU would be asked for.

A CPU and an NPU do not run the same operators for the same line: ``torch.matmul`` is one kernel on
an NPU and several operators on a CPU. So the forward runs below autograd, where composite operators
are still whole, and only those that the NPU does not register are taken apart.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from migrate_kit.dtypes.lines import UserCode, module_of
from migrate_kit.dtypes.lowered import Lowered
from migrate_kit.dtypes.parting import drops, fused, given_to, in_parts
from migrate_kit.dtypes.planned import PlannedMode
from migrate_kit.dtypes.support import LOWERED
from migrate_kit.errors import MigrateError
from migrate_kit.layers.arguments import walk
from migrate_kit.tables import read_table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, FrameType

# What a verdict is asked with: the operator's name and the dtypes' names.
Verdict = Callable[[str, tuple[str, ...]], Any]
_BOOKKEEPING = ("prim", "profiler", "_c10d_functional", "debugprims")
# They give a tensor another identity; nothing is computed.
_NO_KERNEL = {f"aten.{n}.default" for n in ("alias", "detach", "detach_", "lift_fresh")}
_SKIP, _DECOMPOSE, _RECORD = range(3)
_Plan = tuple[int, str, tuple[int | str, ...]]
# What AccumulateGrad has in place of a number.
_NO_NUMBER = (1 << 64) - 1
_SDPA, _DROPOUT = "aten.scaled_dot_product_attention.default", "aten.native_dropout.default"


class Where(NamedTuple):
    """A line of code, and the module that was running."""

    code: CodeType | None
    line: int
    module: str


@dataclass(slots=True)
class OpRecord:
    """One operator on one set of dtypes, called from one line; shapes are the first call's."""

    op: str
    dtypes: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    where: Where
    backward: bool
    verdict: Any
    count: int = 1


@lru_cache(maxsize=1)
def _npu_names() -> dict[str, str]:
    """Return what the NPU has an operator of its own for, with the name it gives it."""
    return {row["op"]: row["npu_op"] or row["op"] for row in read_table("npu_operators")}


class OpRecorder(PlannedMode):
    """Record every operator call inside ``with recorder:``.

    Parameters
    ----------
    verdict : callable
        Takes an operator's name and its dtypes, once for each pair; what it returns is kept. It may
        raise, which stops the run at that operator.
    names : dict of int to str, optional
        The qualified names of the modules by their ``id``.
    fuses_attention : bool
        Whether the target has a kernel for attention as a whole.
    noticed : callable, optional
        Gets every new record before its operator runs; what it raises stops the run there.
    """

    def __init__(
        self,
        verdict: Verdict,
        names: dict[int, str] | None = None,
        *,
        fuses_attention: bool = True,
        noticed: Callable[[OpRecord], None] | None = None,
    ) -> None:
        super().__init__()
        self._noticed = noticed
        self.records: dict[tuple[Any, ...], OpRecord] = {}
        # Where code runs that belongs to no module, e.g. a loss.
        self.module = ""
        self.failed = ""
        # Gets every tensor that an operator is about to write to.
        self.writing: Callable[[torch.Tensor], None] | None = None
        self.names = dict(names or {})
        self._verdict, self.fuses = verdict, fuses_attention
        self._verdicts: dict[tuple[Any, ...], Any] = {}
        self._user = UserCode()
        self._lowered = Lowered()
        # Operators that only an NPU has whole.
        self._wholes: set[Any] = set()
        self._made: dict[int, Where] = {}
        self._watching = False
        self._backward = False
        # The numbers of the nodes of a loss that only stands for one.
        self._stand_in = range(0)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        kwargs = kwargs or {}
        what, name, writes = self._planned(func)
        there: tuple[Any, ...] = ()
        if writes and self.writing is not None:
            self._about_to_write(writes, args, kwargs)
        if what == _RECORD:
            if name == _DROPOUT and not drops(args, kwargs):
                return func(*args, **kwargs)
            if name == _SDPA and not (self.fuses and fused(given_to(func, args, kwargs))):
                with self:
                    result = in_parts(given_to(func, args, kwargs))
                # Under autograd another operator stands here, which keeps more for its backward.
                return result if str(func) == _SDPA else func(*args, **kwargs)
            dtypes = dtypes_of(args, kwargs)
            if not dtypes:  # it makes a tensor from nothing
                result = func(*args, **kwargs)
                self._note(func, name, dtypes_of((result,), {}), (result,))
                return result
            there = dtypes
            if torch.float64 in dtypes:
                there = self._lowered.names(name, args, kwargs, dtypes, autograd=self._backward)
            self._note(func, name, there, (args, kwargs))
        elif what == _DECOMPOSE:
            if any(isinstance(a, torch.Tensor) and a.is_nested for a in args):
                raise self._nested(name)
            with self:
                return _in_its_parts(func, args, kwargs)
        try:
            result = func(*args, **kwargs)
        except Exception:
            self.failed = name
            raise
        return self._lowered.made(there, result) if LOWERED in there else result

    def _plan(self, func: Any) -> _Plan:
        if not isinstance(func, torch._ops.OpOverload):  # noqa: SLF001
            # torch.cond and its like run functions, where nothing is seen.
            return _RECORD, f"higher_order.{func}", ()
        name = str(func)
        if func.namespace in _BOOKKEEPING or name in _NO_KERNEL:
            return _SKIP, name, ()
        whole = _npu_names().get(name)
        composite = torch._C._dispatch_has_kernel_for_dispatch_key(  # noqa: SLF001
            func.name(), "CompositeImplicitAutograd"
        )
        if composite and whole is None:
            return _DECOMPOSE, name, ()
        if composite:
            self._wholes.add(func)
        written: list[int | str] = [
            a.name if a.kwarg_only else position
            for position, a in enumerate(func._schema.arguments)  # noqa: SLF001
            if a.alias_info is not None and a.alias_info.is_write
        ]
        return _RECORD, whole or name, tuple(written)

    def _about_to_write(
        self, writes: tuple[int | str, ...], args: Any, kwargs: dict[str, Any]
    ) -> None:
        assert self.writing is not None  # noqa: S101 - whoever calls has asked
        for where in writes:
            if isinstance(where, str):
                value = kwargs.get(where)
            else:
                value = args[where] if where < len(args) else None
            if type(value) is torch.Tensor:
                self.writing(value)
                continue
            for tensor in value if isinstance(value, list | tuple) else (value,):
                if isinstance(tensor, torch.Tensor):
                    self.writing(tensor)

    def _note(self, func: Any, name: str, dtypes: tuple[Any, ...], tensors: Any) -> None:
        # Python is slow between convolutions that empty the caches: as little as possible of it.
        if self._backward:
            made = self._forward_of(torch._C._current_autograd_node())  # noqa: SLF001
            if made is None:
                return
            frame = self._user.frame(sys._getframe(2))  # noqa: SLF001
            # A backward that the user wrote has a line of its own.
            where = made if frame is None else self._where(frame)._replace(module=made.module)
            if torch.is_grad_enabled():  # a checkpoint computes its forward again
                self._made.setdefault(_node_number() - 1, where)
            key: tuple[Any, ...] = (func, dtypes, where)
            record = self.records.get(key)
        else:
            frame = self._user.frame(sys._getframe(2))  # noqa: SLF001
            if self._watching:
                self._remember(frame)
                return
            line = 0 if frame is None else (id(frame.f_code), frame.f_lasti)
            # Its parts are known again by their module, where the host computes it.
            module = self._module(sys._getframe(2)) if func in self._wholes else ""  # noqa: SLF001
            key = (func, dtypes, line, module)
            record = self.records.get(key)
            where = self._where(frame) if record is None else record.where
        if record is not None:
            record.count += 1
            return
        record = self.records[key] = self._new(name, dtypes, tensors, where)
        if self._noticed is not None:
            self._noticed(record)

    def _module(self, frame: FrameType | None) -> str:
        return self.module or module_of(frame, self.names)

    def _where(self, frame: FrameType | None) -> Where:
        module = self._module(sys._getframe(1))  # noqa: SLF001
        if frame is None:
            return Where(None, 0, module)
        return Where(frame.f_code, _line(frame.f_code, frame.f_lasti), module)

    def _remember(self, frame: FrameType | None) -> None:
        """Note which line makes the next backward node."""
        number = _node_number() - 1
        # Operators without a gradient make no node and find the number of the one before.
        if number not in self._made:
            self._made[number] = self._where(frame)

    def _new(self, name: str, dtypes: tuple[Any, ...], tensors: Any, where: Where) -> OpRecord:
        names = tuple(str(d).removeprefix("torch.") for d in dtypes)
        found = [t for _, t in walk(tensors)]
        if any(t.is_nested for t in found):
            raise self._nested(name)
        shapes = tuple(tuple(t.shape) for t in found)
        known = (name, dtypes)
        if known not in self._verdicts:
            self._verdicts[known] = self._verdict(name, names)
        verdict = self._verdicts[known]
        return OpRecord(name, names, shapes, where, self._backward, verdict)

    def _nested(self, name: str) -> MigrateError:
        module = self._module(sys._getframe(1))  # noqa: SLF001
        return MigrateError(
            f"a nested tensor reaches {name}: no table says what an NPU does with one",
            f"layer {module}" if module else "",
            "torch.nested.to_padded_tensor, or nn.TransformerEncoder(enable_nested_tensor=False)",
        )

    def _forward_of(self, node: Any) -> Where | None:
        """Return the line and module whose operator this backward node belongs to.

        None for what is no part of the model: a loss that only stands for one.
        """
        number = -1 if node is None else node._sequence_nr()  # noqa: SLF001
        known = self._made.get(number)
        if known is None and (number < 0 or number in self._stand_in):
            return None
        return known or Where(None, 0, "(backward)")

    @contextlib.contextmanager
    def noting_forward(self) -> Iterator[None]:
        """Run a forward under autograd only to learn which line made which backward node."""
        self._made, self._watching, self._stand_in = {}, True, range(0)
        try:
            with self:
                yield
        finally:
            self._watching = False

    def forward_ends(self) -> None:
        """Leave out of the backward what is computed until it begins: a loss that stands in."""
        self._stand_in = range(_node_number(), _NO_NUMBER)

    @contextlib.contextmanager
    def backward(self) -> Iterator[None]:
        """Record a backward; every operator is named by the line of its forward."""
        self._stand_in = range(self._stand_in.start, _node_number()) if self._stand_in else range(0)
        self._backward = True
        try:
            with self:
                yield
        finally:
            self._backward = False


def _in_its_parts(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run a composite operator as eager PyTorch does.

    Its own ``decompose`` would take what is registered in Python for export, where an interpolation
    is index arithmetic; a device is asked for ``upsample_bilinear2d``.
    """
    return func._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)  # noqa: SLF001


def _node_number() -> int:
    """Return the number that the next node of the backward graph will have on this thread."""
    number: int = torch._C._autograd._get_sequence_nr()  # noqa: SLF001
    return number


def _line(code: CodeType, instruction: int) -> int:
    """Return the line of an instruction, as a traceback shows it."""
    for start, end, line in code.co_lines():
        if start <= instruction < end and line is not None:
            return line
    return code.co_firstlineno


def dtypes_of(args: Any, kwargs: dict[str, Any]) -> tuple[torch.dtype, ...]:
    """Return the dtypes of an operator's tensors in order, then the one it was asked for."""
    found = []
    for a in args:
        if isinstance(a, torch.Tensor):
            found.append(a.dtype)
        elif type(a) in (list, tuple):
            # However long a list is, it is one kind of call.
            found.extend(dict.fromkeys(t.dtype for t in a if isinstance(t, torch.Tensor)))
        elif isinstance(a, torch.dtype):
            found.append(a)
    for k in kwargs.values():
        if isinstance(k, torch.Tensor):
            found.append(k.dtype)
        elif isinstance(k, torch.dtype):
            found.append(k)
    return tuple(found)


@contextlib.contextmanager
def below_autograd() -> Iterator[None]:
    """Run operators without the layer that takes composite ones apart before anybody sees them.

    The results are ordinary tensors without a gradient, unlike those of ``inference_mode``, which
    a model may cache and could not train with afterwards.
    """
    with torch.no_grad(), torch._C._AutoDispatchBelowAutograd():  # noqa: SLF001
        yield
