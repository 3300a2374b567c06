"""Composite operators of which only the arguments say whether an NPU has one kernel for them."""

from __future__ import annotations

from typing import Any

import torch

_QKV = ("query", "key", "value")


def drops(args: Any, kwargs: dict[str, Any]) -> bool:
    """Whether a dropout draws numbers; outside training it hands its input on."""
    given = dict(zip(("input", "p", "train"), args, strict=False)) | kwargs
    return bool(given.get("train", True)) and given.get("p", 0.5) > 0


def given_to(func: Any, args: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return arguments by name: what autograd calls has other places for them than attention."""
    names = [a.name for a in func._schema.arguments]  # noqa: SLF001
    return dict(zip(names, args, strict=False)) | kwargs


def fused(given: dict[str, Any]) -> bool:
    """Whether an NPU's attention kernel takes these arguments.

    As in Ascend/op-plugin, ScaledDotProductAttentionKernelNpuOpApi.cpp: four dimensions, no mask or
    a bool one, float16, bfloat16, or float32 with head sizes that four divides.
    """
    qkv, mask = [given[n] for n in _QKV], given.get("attn_mask")
    dtype = qkv[0].dtype
    return (
        all(t.dim() == 4 for t in qkv)
        and (mask is None or mask.dtype == torch.bool)
        and dtype in (torch.float16, torch.bfloat16, torch.float32)
        and not (dtype == torch.float32 and any(t.shape[-1] % 4 for t in qkv))
    )


def in_parts(given: dict[str, Any]) -> torch.Tensor:
    """Compute attention from matrix products and a softmax."""
    query, key, value = (given[n] for n in _QKV)
    mask, dropout = given.get("attn_mask"), given.get("dropout_p", 0.0)
    more = {n: given[n] for n in ("scale", "enable_gqa") if n in given}
    result: tuple[torch.Tensor, ...] = torch.ops.aten._scaled_dot_product_attention_math(  # noqa: SLF001
        query, key, value, mask, dropout, given.get("is_causal", False), None, **more
    )
    return result[0]
