"""Which float64 tensors of a run are float32 on an NPU: those that a cast by dtype alone made.

``x.double()`` and ``x.to(torch.float64)`` give float32 there, with one warning (Ascend/pytorch
ToKernelNpu.cpp). A cast that names the device too, ``.npu()`` and what is made with ``dtype=`` keep
float64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from migrate_kit.dtypes.support import LOWERED
from migrate_kit.layers.arguments import walk

if TYPE_CHECKING:
    from collections.abc import Iterable

_CAST: Final = "aten._to_copy.default"
Named = torch.dtype | str


class Lowered:
    """Remember the memory of what was lowered: views and saved tensors share it.

    Examples
    --------
    >>> import torch
    >>> lowered, x = Lowered(), torch.ones(2)
    >>> cast = {"dtype": torch.float64}
    >>> there = lowered.names("aten._to_copy.default", (x,), cast, (x.dtype, torch.float64))
    >>> there
    (torch.float32, 'float64>float32')
    >>> y = lowered.made(there, x.double())
    >>> lowered.names("aten.neg.default", (y,), {}, (y.dtype,))
    ('float64>float32',)
    """

    def __init__(self) -> None:
        # A weak reference keeps the address from being given to another storage.
        self._memory: dict[int, StorageWeakRef] = {}
        self._real = False

    def names(
        self,
        op: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        dtypes: tuple[torch.dtype, ...],
        *,
        autograd: bool = False,
    ) -> tuple[Named, ...]:
        """Return the dtypes of a call with the lowered ones named as such.

        Parameters
        ----------
        op : str
        args, kwargs
            Of the call.
        dtypes : tuple of torch.dtype
            Of its tensors, then the one that is asked for.
        autograd : bool
            Whether a backward makes the call: its casts name a device and follow the forward.
        """
        if torch.float64 not in dtypes:
            return dtypes
        if op == _CAST and kwargs.get("dtype") == torch.float64:
            follows = autograd and bool(self._memory) and not self._real
            if kwargs.get("device") is None or follows:
                return (*dtypes[:-1], LOWERED)
        doubles = [t for _, t in walk((args, kwargs)) if t.dtype == torch.float64]
        asked = any(v is torch.float64 for v in (*args, *kwargs.values()))
        if asked or not doubles or not all(map(self._knows, doubles)):
            self._real = True
            if asked or len(doubles) != dtypes.count(torch.float64):
                return dtypes
        kinds = iter([LOWERED if self._knows(t) else torch.float64 for t in doubles])
        if len(doubles) == dtypes.count(torch.float64):
            return tuple(next(kinds) if d == torch.float64 else d for d in dtypes)
        return tuple(LOWERED if d == torch.float64 else d for d in dtypes)

    def made(self, names: Iterable[Named], result: Any) -> Any:
        """Note that a call's results are lowered where all its float64 is; return the result."""
        if LOWERED in names and torch.float64 not in names:
            for _, tensor in walk(result):
                if tensor.dtype == torch.float64:
                    ref = StorageWeakRef(tensor.untyped_storage())
                    self._memory[ref.cdata] = ref
        return result

    def _knows(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage()._cdata in self._memory  # noqa: SLF001
