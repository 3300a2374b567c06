"""Operands of a matrix product as a chip rounds them, in float32 storage."""

from __future__ import annotations

from typing import Final

import torch

from migrate_kit.errors import MigrateError

FP16_MAX: Final = 65504.0
# Small enough for a processor's cache and for torch to stay on one thread (its grain is 2^15:
# joining threads for so little costs more than the work), large enough that the calls do not count.
_CHUNK: Final = 1 << 15


def round_operand(
    x: torch.Tensor, form: str, *, hf32_bits: int = 11, saturate: bool = False
) -> torch.Tensor:
    """Round float32 values to what a matrix unit takes, and give them back as float32.

    Parameters
    ----------
    x : Tensor
        float32, of any shape; the result has its shape and, where it is dense, its strides.
    form : {"fp32", "HF32", "fp16", "bf16"}
        HF32 rounds the mantissa to ``hf32_bits`` stored bits, ties to even.
    saturate : bool
        float16 beyond 65504 becomes 65504 and NaN becomes 0, in place of Inf and NaN.

    Returns
    -------
    Tensor

    Raises
    ------
    MigrateError
        If there is no such format.

    Examples
    --------
    >>> import torch
    >>> round_operand(torch.tensor([1 + 2**-11, 1 + 2**-13]), "HF32").tolist()
    [1.00048828125, 1.0]
    >>> round_operand(torch.tensor([1e6]), "fp16", saturate=True).item()
    65504.0
    """
    if form == "fp32":
        return x
    if form == "fp16" and saturate:
        return x.clamp(-FP16_MAX, FP16_MAX).half().float().nan_to_num_(nan=0.0)
    if form == "fp16":
        return x.half().float()
    if form == "bf16":
        return x.bfloat16().float()
    if form != "HF32":
        raise MigrateError(
            f"no format {form!r}", "round_operand(form=)", "HF32, fp16, bf16 or fp32"
        )
    out = torch.empty_like(x)
    if out.stride() != x.stride():  # there are gaps between its values, or some are the same
        x = x.contiguous()
        out = torch.empty_like(x)
    flat, row = (t.as_strided((t.numel(),), (1,)) for t in (x.detach(), out))
    _round_row(flat, row, hf32_bits)
    return out


def _round_row(x: torch.Tensor, out: torch.Tensor, bits: int) -> None:
    """Round a row as :func:`migrate_kit.layers.formats.round_mantissa` does, in a quarter the time.

    The bits are shifted in a scratch that stays in the cache, so that memory is read once and
    written once.
    """
    drop = 23 - bits
    half, mask = (1 << (drop - 1)) - 1, ~((1 << drop) - 1)
    i, o = x.view(torch.int32), out.view(torch.int32)
    scratch = torch.empty(min(_CHUNK, i.numel()), dtype=torch.int32)
    for start in range(0, i.numel(), _CHUNK):
        part = i[start : start + _CHUNK]
        work = scratch[: part.numel()]
        torch.bitwise_right_shift(part, drop, out=work)
        work.bitwise_and_(1).add_(part).add_(half)
        torch.bitwise_and(work, mask, out=o[start : start + _CHUNK])
        values = x[start : start + _CHUNK]
        # A NaN whose bits are all ones would carry over into the sign and come out as zero.
        if not bool(values.sum().isfinite()):
            kept = out[start : start + _CHUNK]
            kept.copy_(torch.where(values.isfinite(), kept, values))
