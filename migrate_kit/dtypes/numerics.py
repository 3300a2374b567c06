"""A chip's default arithmetic, on a CPU: operands rounded as the chip rounds them, sums in float32.

This is what the formats alone cost. A device's own tiling and order of summation add float32
rounding to it, which is what the noise floor measures.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from migrate_kit.dtypes.host import OnHost
from migrate_kit.dtypes.operands import FP16_MAX, round_operand
from migrate_kit.dtypes.planned import PlannedMode
from migrate_kit.layers.arguments import walk
from migrate_kit.layers.runners.torch_runner import TorchRunner

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from migrate_kit.dtypes.chips import Chip
    from migrate_kit.layers.capture import Recorder, RunOptions, Source

# Which arguments are the factors of the products. Two vectors (dot) keep float32: aclnnMatmul.md.
_FACTORS: Final[dict[str, tuple[str, tuple[int, ...]]]] = {
    "aten::convolution": ("conv", (0, 1)),
    "aten::_convolution": ("conv", (0, 1)),  # what torch.jit.trace writes down
    "aten::convolution_backward": ("conv", (0, 1, 2)),
    "aten::conv_tbc": ("conv", (0, 1)),
    "aten::mm": ("matmul", (0, 1)),
    "aten::bmm": ("matmul", (0, 1)),
    "aten::mv": ("matmul", (0, 1)),
    "aten::addmm": ("matmul", (1, 2)),
    "aten::addmm_": ("matmul", (1, 2)),
    "aten::addmv": ("matmul", (1, 2)),
    "aten::addmv_": ("matmul", (1, 2)),
    "aten::addbmm": ("matmul", (1, 2)),
    "aten::addbmm_": ("matmul", (1, 2)),
    "aten::baddbmm": ("matmul", (1, 2)),
    "aten::baddbmm_": ("matmul", (1, 2)),
    "aten::_addmm_activation": ("matmul", (1, 2)),
}
# Composites that the NPU has no kernel for and whose parts are matrix products.
_OF_PRODUCTS: Final = {"aten::_trilinear": "CompositeExplicitAutogradNonFunctional"}
# They multiply inside one kernel of the CPU, or the NPU does in one of its own.
_HIDDEN: Final = {
    "conv": (
        *("mkldnn_convolution", "_slow_conv2d_forward", "slow_conv3d_forward"),
        *("slow_conv_transpose2d", "slow_conv_transpose3d"),
        *("slow_conv_dilated2d", "slow_conv_dilated3d"),
    ),
    "matmul": (
        *("mkldnn_rnn_layer", "mkldnn_rnn_layer_backward", "mkldnn_linear"),
        *("_sparse_addmm", "_sparse_mm", "sparse_sampled_addmm"),
        *("_euclidean_dist", "_cdist_forward", "_cdist_backward", "linalg_matrix_exp"),
        *("_native_multi_head_attention", "_transformer_encoder_layer_fwd"),
    ),
}
_HIDES: Final = {f"aten::{name}": kind for kind, names in _HIDDEN.items() for name in names}
# Of other operators than torch's nobody knows whether they multiply.
_TORCHS: Final = ("aten", "prim", "prims", "profiler", "_c10d_functional", "debugprims", "inductor")
_RECURRENT: Final = frozenset(
    getattr(torch._VF, name)  # noqa: SLF001 - what torch.nn calls
    for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")
)
# They make, move or choose values: an Inf in them was there before, or was asked for.
_MAKERS: Final = (
    *("empty", "empty_like", "empty_strided", "new_empty", "zeros", "zeros_like", "new_zeros"),
    *("fill", "fill_", "full", "full_like", "new_full", "scalar_tensor", "lift_fresh"),
    *("masked_fill", "masked_fill_", "where", "tril", "triu", "constant_pad_nd", "_to_copy"),
    *("cat", "stack", "repeat", "clone", "copy_", "gather", "index", "index_select"),
)
_MOVES: Final = frozenset(f"aten::{name}" for name in _MAKERS)


class _Plan(NamedTuple):
    """What to do with an operator: which operands to round, to what, and what to look at."""

    form: str = "fp32"
    factors: tuple[int, ...] = ()
    makes: bool = False
    moves: bool = False
    parts: Any = None
    hides: bool = False
    host: bool = False

    @property
    def multiplies(self) -> bool:
        """Whether operands are rounded here, or would be if they could be seen."""
        return bool(self.factors) or self.hides


class ChipMode(PlannedMode):
    """Inside ``with ChipMode(chip):`` operators compute as the chip does by default.

    Those of ``host`` compute as the CPU does.

    Attributes
    ----------
    rounded : Counter
        Calls whose operands were rounded, by operator.
    hidden : Counter
        Calls that may multiply inside one kernel, where no operand can be rounded.
    hosted : Counter
        Products that the host computes, with operands as they are.
    saturated : Counter
        Elements that overflowed, by operator, where the chip saturates.
    lowered : int
        Results in float64, which the NPU keeps in float32.
    """

    def __init__(self, chip: Chip, host: OnHost | None = None) -> None:
        super().__init__()
        self.chip = chip
        self._host = host or OnHost()
        self.rounded: Counter[str] = Counter()
        self.hidden: Counter[str] = Counter()
        self.hosted: Counter[str] = Counter()
        self.saturated: Counter[str] = Counter()
        self.lowered = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        kwargs = kwargs or {}
        plan: _Plan = self._planned(func)
        # The frame that dispatches is this one's caller.
        if plan.host and self._host.runs(str(func), args, kwargs, sys._getframe(1)):  # noqa: SLF001
            if plan.multiplies:
                self.hosted[name_of(func)] += 1
            return func(*args, **kwargs)
        if plan.parts is not None:
            with self:
                return plan.parts(*args, **kwargs)
        if plan.factors:
            args = self._rounded(func, plan, list(args))
        elif plan.hides and any(t.dtype == torch.float32 for t in _flat((args, kwargs))):
            self.hidden[name_of(func)] += 1
        result = func(*args, **kwargs)
        if plan.makes:
            self._lower(result, plan, func, args)
        return result

    def _lower(self, result: Any, plan: _Plan, func: Any, args: Any) -> None:
        """Make of a result what the chip can hold."""
        for tensor in (result,) if isinstance(result, torch.Tensor) else _flat(result):
            if not _has_values(tensor):
                continue
            if tensor.dtype == torch.float64:
                self.lowered += 1
                tensor.copy_(tensor.float())
            elif self.chip.saturates and not plan.moves and tensor.is_floating_point():
                self._saturate(tensor, func, args)

    def _plan(self, func: Any) -> _Plan:
        plan = self._arithmetic(func)
        parts = self._host.in_parts and (plan.multiplies or plan.parts is not None)
        return plan._replace(host=parts or self._host.knows(str(func)))

    def _arithmetic(self, func: Any) -> _Plan:
        if not isinstance(func, torch._ops.OpOverload):  # noqa: SLF001 - torch.cond and its like
            return _Plan(hides=self.chip.rounds)
        name = func._schema.name  # noqa: SLF001
        # Under autograd a composite was taken apart before it comes here; in inference mode not.
        key = _OF_PRODUCTS.get(name, "CompositeImplicitAutograd")
        if runs_as(func, key):
            return _Plan(parts=partial(func._op_dk, getattr(torch._C.DispatchKey, key)))  # noqa: SLF001
        kind, factors = _FACTORS.get(name, ("", ()))
        form = getattr(self.chip, kind) if kind else "fp32"
        returns = [r.alias_info for r in func._schema.returns]  # noqa: SLF001
        makes = any(a is None or a.is_write for a in returns)
        hides = self._hides(name, func.namespace)
        return _Plan(form, factors if form != "fp32" else (), makes, name in _MOVES, None, hides)

    def _hides(self, name: str, namespace: str) -> bool:
        if namespace not in _TORCHS:
            return self.chip.rounds
        kind = _HIDES.get(name)
        return kind is not None and getattr(self.chip, kind) != "fp32"

    def _rounded(self, func: Any, plan: _Plan, args: list[Any]) -> list[Any]:
        chip, form = self.chip, plan.form
        rounded = False
        for position in plan.factors:
            x = args[position]
            if not isinstance(x, torch.Tensor) or x.dtype != torch.float32 or not _has_values(x):
                continue
            if x.layout != torch.strided:
                self.hidden[name_of(func)] += 1
            else:
                if form == "fp16" and chip.saturates:
                    self.saturated[name_of(func)] += int((x.abs() > FP16_MAX).sum())
                args[position] = round_operand(
                    x, form, hf32_bits=chip.hf32_bits, saturate=chip.saturates
                )
                rounded = True
        if rounded:
            self.rounded[name_of(func)] += 1
        return args

    def _saturate(self, tensor: torch.Tensor, func: Any, args: Any) -> None:
        if tensor.numel() == 0 or bool(tensor.sum(dtype=torch.float32).isfinite()):
            return
        bad = int((~tensor.isfinite()).sum())
        if not bad:
            return
        came_in = any(t.is_floating_point() and not bool(t.isfinite().all()) for t in _flat(args))
        tensor.nan_to_num_(nan=0.0)
        if not came_in:
            self.saturated[name_of(func)] += bad


def _has_values(tensor: torch.Tensor) -> bool:
    # Forward differentiation has zeros without memory, and asks meta tensors for shapes.
    return not (tensor.is_meta or tensor._is_zerotensor())  # noqa: SLF001


def name_of(func: Any) -> str:
    """Return an operator's name, without torch's own namespace."""
    if not isinstance(func, torch._ops.OpOverload):  # noqa: SLF001
        return f"higher_order.{func}"
    return str(func._schema.name.removeprefix("aten::").replace("::", "."))  # noqa: SLF001


def runs_as(func: Any, key: str) -> bool:
    """Whether an operator has a kernel of this composite kind and, on a CPU, no other."""

    def has(name: str) -> bool:
        return torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), name)  # noqa: SLF001

    return has(key) and not has("CPU")


def _flat(value: Any) -> Iterator[torch.Tensor]:
    for _, tensor in walk(value):
        yield tensor


class _Outside:
    """A recorder whose own arithmetic is not the chip's."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder, self.keeps_inputs = recorder, recorder.keeps_inputs

    def add(self, source: Source, tensor: torch.Tensor, inputs: list[Any] | None = None) -> None:
        with torch._C._DisableTorchDispatch():  # noqa: SLF001
            self._recorder.add(source, tensor, inputs)

    def keep(self, tensor: torch.Tensor, key: str) -> str | None:
        with torch._C._DisableTorchDispatch():  # noqa: SLF001
            return self._recorder.keep(tensor, key)


class RehearsedRunner:
    """Run a network on the CPU with a chip's default arithmetic: a runner for ``mk.capture``.

    Parameters
    ----------
    model : torch.nn.Module
        Left as it was found.
    chip : Chip
        Of :func:`migrate_kit.dtypes.chips.find_chip`.
    writes : iterable of str
        As for :class:`migrate_kit.TorchRunner`.
    host : OnHost, optional
        The calls that leave the chip.

    Attributes
    ----------
    mode : ChipMode
        Of the last run: what was rounded, saturated and lowered.

    Examples
    --------
    >>> import torch, migrate_kit as mk
    >>> from migrate_kit.dtypes.chips import find_chip
    >>> model, x = torch.nn.Conv2d(3, 8, 3), torch.randn(1, 3, 8, 8)
    >>> there = mk.capture(RehearsedRunner(model, find_chip("ascend910b")), x)
    >>> diff = mk.compare(mk.capture(model, x), there)
    >>> diff.first_divergence.arithmetic
    'HF32'
    """

    def __init__(
        self,
        model: torch.nn.Module,
        chip: Chip,
        writes: Iterable[str] = (),
        host: OnHost | None = None,
    ) -> None:
        self.inner, self.chip = TorchRunner(model, "cpu", writes=writes), chip
        self._host = host
        self.mode = ChipMode(chip, host)

    @property
    def lost(self) -> tuple[str, ...]:
        """What the last run changed in the model and could not put back."""
        return self.inner.lost

    def meta(self) -> dict[str, Any]:
        """Return what the trace says of this run."""
        return self.inner.meta() | {
            "runner": "rehearsed",
            "device": f"cpu, rehearsing {self.chip.target}",
            "arithmetic": self.chip.arithmetic,
        }

    def run(self, recorder: Recorder, inputs: tuple[Any, ...], options: RunOptions) -> None:
        """Run once and report; see :func:`migrate_kit.capture`."""
        self.mode = ChipMode(self.chip, self._host)
        with _only_plain_products(self.chip), self.mode:
            self.inner.run(_Outside(recorder), inputs, options)


@contextlib.contextmanager
def _only_plain_products(chip: Chip) -> Iterator[None]:
    """Keep the CPU from products that it computes inside one kernel, where no operand is seen."""
    if chip.matmul == "fp32":
        yield
        return
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel([SDPBackend.MATH]), _RecurrentInParts():
        yield


class _RecurrentInParts(TorchFunctionMode):
    """Keep recurrent layers from oneDNN, and nothing else: it is slow without."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        if func not in _RECURRENT:
            return func(*args, **(kwargs or {}))
        with torch.backends.mkldnn.flags(enabled=False, allow_tf32=None):
            return func(*args, **(kwargs or {}))
