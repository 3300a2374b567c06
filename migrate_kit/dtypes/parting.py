"""Composite operators of which only the arguments say whether an NPU has one kernel for them."""

from __future__ import annotations

from typing import Any

import torch

_NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")


def drops(args: Any, kwargs: dict[str, Any]) -> bool:
    """Whether a dropout draws numbers; outside training it hands its input on."""
    given = dict(zip(("input", "p", "train"), args, strict=False)) | kwargs
    return bool(given.get("train", True)) and given.get("p", 0.5) > 0


def fused(args: Any, kwargs: dict[str, Any]) -> bool:
    """Whether an NPU's attention kernel takes these arguments.

    As in Ascend/op-plugin, ScaledDotProductAttentionKernelNpuOpApi.cpp: four dimensions, no mask or
    a bool one, float16, bfloat16, or float32 with head sizes that four divides.
    """
    given = dict(zip(_NAMES, args, strict=False)) | kwargs
    qkv, mask = [given[n] for n in _NAMES[:3]], given.get("attn_mask")
    dtype = qkv[0].dtype
    return (
        all(t.dim() == 4 for t in qkv)
        and (mask is None or mask.dtype == torch.bool)
        and dtype in (torch.float16, torch.bfloat16, torch.float32)
        and not (dtype == torch.float32 and any(t.shape[-1] % 4 for t in qkv))
    )


def in_parts(args: Any, kwargs: dict[str, Any]) -> torch.Tensor:
    """Compute attention from matrix products and a softmax."""
    given = dict(zip(_NAMES, args, strict=False)) | kwargs
    query, key, value = (given.pop(n) for n in _NAMES[:3])
    mask, dropout = given.pop("attn_mask", None), given.pop("dropout_p", 0.0)
    causal = given.pop("is_causal", False)
    result: tuple[torch.Tensor, ...] = torch.ops.aten._scaled_dot_product_attention_math(  # noqa: SLF001
        query, key, value, mask, dropout, causal, None, **given
    )
    return result[0]
