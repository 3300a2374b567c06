"""What a PyTorch network computes with its parameters, step by step.

The steps are operators and not modules: attention that hands ``in_proj_weight`` to a function, and
a block that adds its ``pos_embed``, are seen like any layer.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from migrate_kit.errors import MigrateError

if TYPE_CHECKING:
    from collections.abc import Iterator

# Operators that are a layer: the family, and which argument is what. ``t`` marks a weight that
# arrives transposed.
_LAYERS: Final = {
    "aten.convolution.default": ("conv", 0, {"weight": 1, "bias": 2}),
    "aten.addmm.default": ("linear", 1, {"weight": 2, "bias": 0}),
    "aten.mm.default": ("linear", 0, {"weight": 1}),
    "aten.native_batch_norm.default": (
        "bn",
        0,
        {"weight": 1, "bias": 2, "running_mean": 3, "running_var": 4},
    ),
    "aten.native_layer_norm.default": ("ln", 0, {"weight": 2, "bias": 3}),
    "aten.native_group_norm.default": ("gn", 0, {"weight": 1, "bias": 2}),
    "aten.embedding.default": ("embedding", 1, {"weight": 0}),
    "aten._prelu_kernel.default": ("prelu", 0, {"weight": 1}),
}
_TRANSPOSED: Final = ("aten.addmm.default", "aten.mm.default")
# Modules whose operators are no layers of their own on the other side.
_WHOLE: Final = (torch.nn.RNNBase, torch.nn.RNNCellBase)


@dataclass(frozen=True, slots=True)
class Part:
    """A parameter, or the rows ``start`` to ``stop`` of it."""

    name: str
    shape: tuple[int, ...]
    start: int | None = None
    stop: int | None = None

    def of(self, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return its values."""
        whole = tensors[self.name]
        if self.start is None:
            return whole
        return whole[self.start : self.stop]

    def rows(self, start: int, stop: int) -> Part:
        """Return some rows of this part."""
        first = self.start or 0
        return Part(self.name, (stop - start, *self.shape[1:]), first + start, first + stop)

    def __str__(self) -> str:
        return self.name if self.start is None else f"{self.name}[{self.start}:{self.stop}]"


@dataclass(slots=True)
class Step:
    """One operator that takes parameters.

    Attributes
    ----------
    family : str
        conv, linear, bn, ln, gn, embedding, prelu, rnn; "" where it is any other operator.
    module : str
        Path of the innermost module that was running.
    parts : dict of str to Part
        What it takes of the parameters, by role: weight, bias, running_mean ...
    given, made : Tensor or None
        Its input and output, which nothing changes afterwards.
    options : tuple
        The operator's other arguments, as ATen has them.
    """

    family: str
    operator: str
    module: str
    parts: dict[str, Part]
    given: torch.Tensor | None
    made: torch.Tensor | None
    options: tuple[Any, ...] = ()
    also: tuple[str, ...] = ()  # parameters that went into a value this operator takes


@dataclass(slots=True)
class Passage:
    """One operator without parameters that may be set otherwise: a pool, an activation."""

    operator: str
    module: str
    given: torch.Tensor
    made: torch.Tensor
    options: tuple[Any, ...]
    named: dict[str, Any]
    before: int  # how many steps ran before it


@dataclass(slots=True)
class Walk:
    """A run of a network: its steps in order, and what it returned."""

    steps: list[Step] = field(default_factory=list)
    passages: list[Passage] = field(default_factory=list)
    free: dict[str, int] = field(default_factory=dict)  # parameter -> steps before its first use
    output: Any = None


def walk(model: torch.nn.Module, inputs: tuple[Any, ...]) -> Walk:
    """Run ``model`` on its inputs and return every step with what it took and made.

    Raises
    ------
    MigrateError
        If the network raises.
    """
    found = Walk()
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad(), _Watch(model, found) as watch, watch.modules():
            found.output = model(*inputs)
    except MigrateError:
        raise
    except Exception as error:
        raise MigrateError(
            f"the PyTorch network raised {type(error).__name__}: {error}",
            type(model).__name__,
            "give port() inputs that model(*inputs) takes",
        ) from error
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
    return found


_PASSAGES: Final = (
    "aten.max_pool2d_with_indices.default",
    "aten.max_pool2d.default",
    "aten.avg_pool2d.default",
    "aten._adaptive_avg_pool2d.default",
    "aten.mean.dim",
    "aten.gelu.default",
    "aten.relu.default",
    "aten.relu_.default",
    "aten.silu.default",
    "aten.silu_.default",
    "aten.hardtanh.default",
    "aten.hardtanh_.default",
    "aten.hardswish.default",
    "aten.hardswish_.default",
    "aten.hardsigmoid.default",
    "aten.hardsigmoid_.default",
    "aten.sigmoid.default",
    "aten.sigmoid_.default",
    "aten.tanh.default",
    "aten.leaky_relu.default",
    "aten.leaky_relu_.default",
    "aten.elu.default",
    "aten.elu_.default",
    "aten.mish.default",
    "aten.mish_.default",
    "aten._softmax.default",
    "aten.upsample_nearest2d.default",
    "aten.upsample_nearest2d.vec",
    "aten.upsample_bilinear2d.default",
    "aten.upsample_bilinear2d.vec",
    "aten.upsample_bicubic2d.default",
    "aten.upsample_bicubic2d.vec",
)


class _Watch(TorchDispatchMode):
    def __init__(self, model: torch.nn.Module, found: Walk) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.model, self.found = model, found
        self.stack: list[str] = []
        self.whole = 0
        self.owner: dict[int, str] = {}
        self.tensors: dict[str, torch.Tensor] = {}
        for name, t in [*model.named_parameters(), *model.named_buffers()]:
            if t.numel() and t.is_floating_point():
                self.owner.setdefault(t.untyped_storage().data_ptr(), name)
                self.tensors[name] = t
        # What was computed from parameters alone, by its memory; held so that it is not reused.
        self.derived: dict[int, tuple[str, ...]] = {}
        self.held: list[torch.Tensor] = []
        self.last: tuple[torch.Tensor, Step] | None = None

    @contextlib.contextmanager
    def modules(self) -> Iterator[None]:
        """Follow which module is running."""
        handles = []
        for name, module in self.model.named_modules():

            def enter(m: torch.nn.Module, args: Any, kwargs: Any, name: str = name) -> None:
                self.stack.append(name)
                if isinstance(m, _WHOLE):
                    self.whole += 1
                del args, kwargs

            def leave(
                m: torch.nn.Module, args: Any, kwargs: Any, output: Any, name: str = name
            ) -> None:
                if self.stack and self.stack[-1] == name:
                    self.stack.pop()
                if isinstance(m, _WHOLE):
                    self.whole -= 1
                    if not self.whole:
                        self._whole_module(m, name, [*args, *kwargs.values()], output)

            handles.append(module.register_forward_pre_hook(enter, with_kwargs=True))
            handles.append(module.register_forward_hook(leave, with_kwargs=True, always_call=True))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run one operator, and note it if it takes parameters."""
        del types
        kwargs = kwargs or {}
        if self.whole:
            return func(*args, **kwargs)
        name = str(func)
        given = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
        owned = [self._owner_of(t) for t in given]
        passage = name in _PASSAGES and not any(owned)
        before = given[0].clone() if passage and given else None
        layer = self._layer(name, args)
        held = None
        if layer is not None:
            held = _kept(args[_LAYERS[name][1]])
        made = func(*args, **kwargs)
        if layer is not None:
            layer.given, layer.made = held, _kept(_first(made))
            self.found.steps.append(layer)
        elif passage and before is not None and isinstance(first := _first(made), torch.Tensor):
            here = self.stack[-1] if self.stack else ""
            self.found.passages.append(
                Passage(name, here, before, first.clone(), args[1:], kwargs, len(self.found.steps))
            )
        elif any(owned) and not self._added_bias(name, given, owned, made):
            self._other(given, owned, made)
        if layer is not None and layer.family == "linear":
            self.last = (_first(made), layer)
        return made

    def _added_bias(
        self, name: str, given: list[torch.Tensor], owned: list[tuple[str, ...]], made: Any
    ) -> bool:
        """Take a bias that is added after the product, as for a strided input of Linear."""
        if self.last is None or not name.startswith("aten.add") or len(given) != 2:
            return False
        product, step = self.last
        bias = given[1] if owned[1] else given[0]
        other = given[0] if owned[1] else given[1]
        part = self._part(bias)
        same = other.untyped_storage().data_ptr() == product.untyped_storage().data_ptr()
        if part is None or not same or "bias" in step.parts or bias.shape != made.shape[-1:]:
            return False
        step.parts["bias"], step.made = part, _kept(made)
        self.found.free.pop(part.name, None)
        self.last = None
        return True

    def _owner_of(self, t: torch.Tensor) -> tuple[str, ...]:
        try:
            place = t.untyped_storage().data_ptr()
        except (RuntimeError, NotImplementedError):
            return ()
        if place in self.owner:
            return (self.owner[place],)
        return self.derived.get(place, ())

    def _layer(self, name: str, args: tuple[Any, ...]) -> Step | None:
        if name not in _LAYERS:
            return None
        family, position, roles = _LAYERS[name]
        if len(args) <= position or self._owner_of(args[position]):
            return None
        parts: dict[str, Part] = {}
        also: set[str] = set()
        for role, number in roles.items():
            t = args[number] if number < len(args) else None
            if not isinstance(t, torch.Tensor):
                continue
            value = t.t() if role == "weight" and name in _TRANSPOSED else t
            part = self._part(value)
            if part is not None:
                parts[role] = part
            else:
                also.update(self._owner_of(t))
        if "weight" not in parts and "running_mean" not in parts and not also:
            return None
        for part in parts.values():
            self.found.free.pop(part.name, None)
        here = self.stack[-1] if self.stack else ""
        rest = tuple(a for i, a in enumerate(args) if i != position and i not in roles.values())
        return Step(family, name, here, parts, None, None, rest, tuple(sorted(also)))

    def _part(self, t: torch.Tensor) -> Part | None:
        """Return which parameter this is a view of, if it is one of it or of its rows."""
        owner = self.owner.get(t.untyped_storage().data_ptr())
        if owner is None:
            return None
        whole = self.tensors[owner]
        if t.numel() == whole.numel():
            same = t.is_contiguous() == whole.is_contiguous()
            return Part(owner, tuple(whole.shape)) if same else None
        rest = tuple(whole.shape[1:])
        width = max(1, whole[0].numel())
        offset = t.storage_offset() - whole.storage_offset()
        if tuple(t.shape[1:]) != rest or not t.is_contiguous() or offset % width:
            return None
        start = int(offset) // width
        return Part(owner, tuple(t.shape), start, start + t.shape[0])

    def _other(self, given: list[torch.Tensor], owned: list[tuple[str, ...]], made: Any) -> None:
        """Note what is computed from parameters alone, and the first use of any other."""
        names = tuple(sorted({n for o in owned for n in o}))
        results = [t for t in tree_leaves(made) if isinstance(t, torch.Tensor)]
        if all(o or not g.is_floating_point() for o, g in zip(owned, given, strict=True)):
            for t in results:
                place = t.untyped_storage().data_ptr()
                if place not in self.owner:
                    self.derived[place] = names
                    self.held.append(t)
            return
        for name in names:
            self.found.free.setdefault(name, len(self.found.steps))

    def _whole_module(
        self, module: torch.nn.Module, name: str, args: list[Any], output: Any
    ) -> None:
        prefix = f"{name}." if name else ""
        parts = {
            n: Part(prefix + n, tuple(p.shape)) for n, p in module.named_parameters(recurse=False)
        }
        given = next((a for a in args if isinstance(a, torch.Tensor)), None)
        step = Step("rnn", type(module).__name__, name, parts, _kept(given), _kept(_first(output)))
        self.found.steps.append(step)


def _first(value: Any) -> Any:
    return next((t for t in tree_leaves(value) if isinstance(t, torch.Tensor)), None)


def _kept(t: Any) -> torch.Tensor | None:
    return t.detach().clone() if isinstance(t, torch.Tensor) else None
