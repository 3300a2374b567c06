"""What a model was before a run, and how it is put back."""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from migrate_kit.results import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_CONTAINERS = frozenset((dict, list, set, OrderedDict))
# What most attributes are, and what needs no second look.
_NO_TENSORS = frozenset((bool, int, float, str, tuple, type(None)))
_PROBES = 16


class _Parameter(NamedTuple):
    name: str
    tensor: torch.nn.Parameter
    data: torch.Tensor
    grad: torch.Tensor | None
    trained: bool
    version: int


class Snapshot:
    """Everything that a forward may change in a model, in what takes no copy of its parameters.

    A module is its ``__dict__`` and the containers in it: attributes, hooks, children, registered
    parameters. Buffers and other tensors among them are copied. Of a parameter only the memory that
    it had is remembered, which is enough where it is bound to another; where it is written in place
    its values are put back only if :meth:`keep` was told before, and otherwise :attr:`lost` says
    so.

    Parameters
    ----------
    model : torch.nn.Module
    writes : iterable of str
        Parameters that the forward is known to write to.

    Attributes
    ----------
    kept : dict of str to Tensor
        Values of the parameters that were about to be written to.
    lost, touched : list of str
        After :meth:`put_back`: what was changed and could not be put back, and what was written to
        and looks the same; in another format, that was a copy.
    """

    def __init__(self, model: torch.nn.Module, writes: Iterable[str] = ()) -> None:
        self.kept: dict[str, torch.Tensor] = {}
        self.lost: list[str] = []
        self.touched: list[str] = []
        self._modules: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self._containers: list[tuple[Any, Any]] = []
        self._empty: list[Any] = []
        tensors: dict[int, torch.Tensor] = {}
        parameters: dict[int, _Parameter] = {}
        for prefix, module in model.named_modules():
            self._look(vars(module), tensors)
            for name, p in module._parameters.items():  # noqa: SLF001 - one walk in place of two
                if p is not None and id(p) not in parameters:
                    full = f"{prefix}.{name}" if prefix else name
                    parameters[id(p)] = _Parameter(
                        full, p, p.data, p.grad, p.requires_grad, _version(p)
                    )
        for number in parameters:
            tensors.pop(number, None)
        self._parameters = list(parameters.values())
        self._probes = _Copies([_few(p.data) for p in self._parameters])
        self._tensors = [(t, t.detach()) for t in tensors.values()]
        self._values = _Copies([_dense(data) for _, data in self._tensors])
        self._memory: list[tuple[int, int, _Parameter]] | None = None
        self._starts: list[int] = []
        chosen = set(writes)
        for p in self._parameters:
            if p.name in chosen:
                self.kept[p.name] = _dense(p.data).clone()

    def _look(self, attributes: dict[str, Any], tensors: dict[int, torch.Tensor]) -> None:
        """Remember a module's attributes and the content of its containers; collect tensors."""
        self._modules.append((attributes, attributes.copy()))
        for value in attributes.values():
            kind = type(value)
            if kind in _CONTAINERS:
                if value:
                    content = value.copy()
                    self._containers.append((value, content))
                    _collect(content.values() if isinstance(content, dict) else content, tensors)
                else:
                    self._empty.append(value)
            elif kind not in _NO_TENSORS:
                _collect((value,), tensors)

    def forget_gradients(self) -> None:
        """Take the gradients away until the model is put back."""
        for p in self._parameters:
            p.tensor.grad = None

    def keep(self, tensor: torch.Tensor) -> None:
        """Copy the parameters that share memory with ``tensor``, which is about to be written."""
        # It is asked at every operator that writes, and nearly always in vain.
        try:
            place = tensor.data_ptr()
        except RuntimeError:  # sparse, or made of other tensors
            return
        if self._memory is None:
            self._memory = sorted(_memory(self._parameters), key=lambda m: m[:2])
            self._starts = [start for start, _, _ in self._memory]
        last = bisect_right(self._starts, place) - 1
        if last < 0 or self._memory[last][1] <= place:
            return
        for start, _, p in self._memory:
            if start == self._starts[last] and p.name not in self.kept:
                with torch._C._DisableTorchDispatch():  # noqa: SLF001 - it is no part of the model
                    self.kept[p.name] = _dense(p.data).clone()

    def put_back(self) -> None:
        """Give the model everything back, the very same objects."""
        for now, before in self._modules:
            now.update(before)
            if len(now) > len(before):
                for name in now.keys() - before.keys():
                    del now[name]
        for container, content in self._containers:
            _refill(container, content)
        for container in self._empty:
            if container:
                container.clear()
        self._put_back_tensors()
        probed = set(self._probes.changed())
        for number, p in enumerate(self._parameters):
            self._put_back_parameter(p, written=number in probed)

    def _put_back_tensors(self) -> None:
        for t, data in self._tensors:
            if not _is_at(t, data):
                _rebind(t, data)
        for number in self._values.changed():
            t, data = self._tensors[number]
            try:
                _write(_dense(data), self._values.before(number))
            except RuntimeError:
                self.lost.append(f"a {tuple(t.shape)} tensor of the model")

    def _put_back_parameter(self, p: _Parameter, *, written: bool) -> None:
        t = p.tensor
        if not _is_at(t, p.data):
            _rebind(t, p.data)
        if p.name in self.kept:
            _write(_dense(p.data), self.kept[p.name])
        elif written:
            self.lost.append(p.name)
        elif p.version != _version(t):
            self.touched.append(p.name)
        if t.requires_grad != p.trained:
            t.requires_grad_(p.trained)
        t.grad = p.grad


@contextlib.contextmanager
def left_as_found(model: torch.nn.Module, writes: Iterable[str] = ()) -> Iterator[Snapshot]:
    """Run without gradients from before, and put the model back afterwards."""
    snapshot = Snapshot(model, writes)
    # The casts of weights that autocast keeps: those of the run would be of no use to a training
    # (they may have no gradient), and those from before would hide operators.
    torch.clear_autocast_cache()
    try:
        snapshot.forget_gradients()
        yield snapshot
    finally:
        torch.clear_autocast_cache()
        snapshot.put_back()


def not_put_back(lost: Iterable[str]) -> list[Finding]:
    """Say what a run changed in the model where nobody saw it in time to keep it."""
    names = list(dict.fromkeys(lost))
    if not names:
        return []
    what = "the forward writes to the model's own tensors, which could not be put back"
    fix = f"load the weights again, and run mk.TorchRunner(model, writes={names[:5]})"
    return [Finding("warning", what, ", ".join(names[:5]), fix)]


class _Copies:
    """Copies of many views: a contiguous one costs a fraction of an operator of its own."""

    def __init__(self, views: list[torch.Tensor | None]) -> None:
        groups: dict[Any, tuple[list[int], list[torch.Tensor]]] = {}
        self._single: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        for number, v in enumerate(views):
            if v is None or v.is_meta:
                continue
            if _plain(v) and (v.dim() == 1 or v.is_contiguous()):
                numbers, rows = groups.setdefault((v.dtype, v.device), ([], []))
                numbers.append(number)
                rows.append(v if v.dim() == 1 else v.view(-1))
            else:
                self._single[number] = v, v.clone()
        self._groups = [(n, rows, torch.cat(rows)) for n, rows in groups.values()]

    def changed(self) -> list[int]:
        """Return the numbers of the views whose values are others now."""
        found = [n for n, (v, before) in self._single.items() if not _equal(v, before)]
        for numbers, rows, before in self._groups:
            if not _equal(before, torch.cat(rows)):
                parts = before.split([v.numel() for v in rows])
                found += [
                    n for n, v, b in zip(numbers, rows, parts, strict=True) if not _equal(v, b)
                ]
        return found

    def before(self, number: int) -> torch.Tensor:
        """Return the values that a view had."""
        if number in self._single:
            return self._single[number][1]
        for numbers, rows, before in self._groups:
            if number in numbers:
                start = sum(v.numel() for v in rows[: numbers.index(number)])
                return before[start : start + rows[numbers.index(number)].numel()]
        raise KeyError(number)


def _few(t: torch.Tensor) -> torch.Tensor | None:
    """Return a view of elements that lie evenly over the memory of a tensor.

    They tell a write that no version counts: through ``.data``, or NumPy.
    """
    if not _plain(t) or not t.numel():
        return None
    last = t.numel() - 1
    if not t.is_contiguous():
        last = sum((n - 1) * s for n, s in zip(t.shape, t.stride(), strict=True))
    count = min(_PROBES, last + 1)
    return t.as_strided((count,), (last // (count - 1) if count > 1 else 1,))


def _collect(values: Iterable[Any], tensors: dict[int, torch.Tensor]) -> None:
    for v in values:
        # What has a history was computed, as the weight of weight_norm is.
        if isinstance(v, torch.Tensor) and v.grad_fn is None and not v.is_meta:
            tensors[id(v)] = v


def _refill(container: Any, content: Any) -> None:
    if isinstance(container, list):
        container[:] = content
    elif isinstance(container, set):
        container.intersection_update(content)
        container.update(content)
    else:
        container.update(content)
        if len(container) > len(content):
            for key in container.keys() - dict(content).keys():
                del container[key]


def _is_at(t: torch.Tensor, data: torch.Tensor) -> bool:
    """Whether a tensor still has its memory, and its shape there."""
    try:
        return t.dtype == data.dtype and t.is_set_to(data)
    except (RuntimeError, TypeError):  # sparse, meta, made of other tensors
        return True


def _rebind(t: torch.Tensor, data: torch.Tensor) -> None:
    """Undo ``t.data = other`` and ``t.resize_(...)``."""
    with _writing(t):
        t.data = data


def _write(t: torch.Tensor, values: torch.Tensor) -> None:
    with _writing(t):
        t.copy_(values.view(t.shape) if values.shape != t.shape else values)


def _writing(t: torch.Tensor) -> Any:
    return torch.inference_mode() if t.is_inference() else torch.no_grad()


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors hold the same; NaN is the same as NaN."""
    with contextlib.suppress(RuntimeError):  # it takes no float8
        if torch.equal(a, b):
            return True
    with contextlib.suppress(RuntimeError):  # a sparse one has no bytes
        return torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))
    return False


def _plain(t: torch.Tensor) -> bool:
    """Whether a tensor is a piece of memory with strides, and not made of other tensors."""
    if t.layout != torch.strided or t.is_nested:
        return False
    return type(t) in (torch.Tensor, torch.nn.Parameter) or not is_traceable_wrapper_subclass(t)


def _dense(t: torch.Tensor) -> torch.Tensor:
    """Return a view with every element once: an expanded tensor cannot be copied to."""
    if not _plain(t) or 0 not in t.stride() or not t.numel():
        return t
    once = [1 if s == 0 else n for n, s in zip(t.shape, t.stride(), strict=True)]
    return t.as_strided(once, t.stride())


def _memory(parameters: list[_Parameter]) -> Iterator[tuple[int, int, _Parameter]]:
    """Yield where the memory of each parameter begins and ends; several may share one."""
    for p in parameters:
        data = p.data
        if not _plain(data) or data.is_meta:
            continue
        if data.storage_offset() == 0 and data.is_contiguous():
            start = data.data_ptr()
            yield start, start + data.numel() * data.element_size(), p
        else:  # what it is a part of may be written as a whole
            storage = data.untyped_storage()
            yield storage.data_ptr(), storage.data_ptr() + storage.nbytes(), p


def _version(t: torch.Tensor) -> int:
    return -1 if t.is_inference() else t._version  # noqa: SLF001 - there is no public one
