"""The safetensors format: a JSON header, then the values; PyTorch and MindSpore write the same."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import torch

from migrate_kit.checkpoints.formats.beside import left_out
from migrate_kit.checkpoints.state import Contents, Entry, StateDict

if TYPE_CHECKING:
    from collections.abc import Iterable

    from migrate_kit.checkpoints.formats.source import Source

    _Parsed = tuple[str, tuple[int, ...], int, int]

# As the library: no header is longer.
_MOST_HEADER = 100_000_000
# A list or object of JSON takes a hundred times its two bytes; a million tensors have three each.
_MOST_BRACKETS = 3_000_000
_LONGEST_VALUE = 200
_MOST_EXTRAS = 100
# Bits and PyTorch's name. Of what is smaller than a byte PyTorch has no tensor of single values.
DTYPES: Final = {
    "F64": (64, "float64"),
    "F32": (32, "float32"),
    "F16": (16, "float16"),
    "BF16": (16, "bfloat16"),
    "I64": (64, "int64"),
    "I32": (32, "int32"),
    "I16": (16, "int16"),
    "I8": (8, "int8"),
    "U64": (64, "uint64"),
    "U32": (32, "uint32"),
    "U16": (16, "uint16"),
    "U8": (8, "uint8"),
    "BOOL": (8, "bool"),
    "C64": (64, "complex64"),
    "F8_E4M3": (8, "float8_e4m3fn"),
    "F8_E5M2": (8, "float8_e5m2"),
    "F8_E4M3FNUZ": (8, "float8_e4m3fnuz"),
    "F8_E5M2FNUZ": (8, "float8_e5m2fnuz"),
    "F8_E8M0": (8, "float8_e8m0fnu"),
    "F6_E2M3": (6, ""),
    "F6_E3M2": (6, ""),
    "F4": (4, ""),
}


def recognises(source: Source) -> bool:
    """Whether it begins with a plausible length and a JSON object."""
    head = source.head(512)
    length = int.from_bytes(head[:8], "little")
    text = head[8 : 8 + length]
    if len(head) < 10 or not 2 <= length <= _MOST_HEADER or text[:1] != b"{":
        return False
    return text[1:].lstrip(b" \t\r\n")[:1] in (b'"', b"}", b"") and min(text) >= 9


def read(source: Source) -> Contents:
    """List the tensors; their values stay mapped."""
    header, start = _header(source)
    metadata = header.pop("__metadata__", None)
    parsed = {name: _parsed(source, name, value) for name, value in header.items()}
    _check_places(source, parsed, start)
    entries: dict[str, Entry] = {}
    without: dict[str, str] = {}
    for name, (dtype, shape, begin, _) in parsed.items():
        kind = getattr(torch, DTYPES[dtype][1] or "none", None)
        if isinstance(kind, torch.dtype):
            entries[name] = source.entry(kind, shape, start + begin, f"{name[:80]!r}")
        else:
            without[name] = dtype
    found = Contents("safetensors", "weights", StateDict(entries), _extras(source, metadata))
    if without:
        found.findings.append(left_out(source, without))
    return found


def _check_places(source: Source, parsed: dict[str, _Parsed], start: int) -> None:
    """Refuse holes and overlaps, as the library does: no bytes can hide in a file."""
    at = 0
    for name, (dtype, shape, begin, end) in sorted(parsed.items(), key=lambda item: item[1][2:]):
        if begin != at:
            raise source.damaged(f"{name[:80]!r} begins at {begin:,}, where {at:,} is next")
        if source.checked_count(shape, name[:80]) * DTYPES[dtype][0] != (end - begin) * 8:
            raise source.damaged(f"{name[:80]!r} has {end - begin:,} bytes and the shape {shape}")
        source.view(start + begin, end - begin, f"{name[:80]!r}")
        at = end
    if start + at != source.size:
        raise source.damaged(f"its tensors end at {start + at:,}, and the file at {source.size:,}")


def _header(source: Source) -> tuple[dict[str, Any], int]:
    length = int.from_bytes(source.bytes(0, 8, "the length of the header"), "little")
    if length > _MOST_HEADER:
        raise source.damaged(f"the header would have {length:,} bytes")
    text = source.bytes(8, length, "the header")
    if text.count(b"{") + text.count(b"[") > _MOST_BRACKETS:
        raise source.damaged("the header has too many brackets")
    try:
        header = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise source.damaged(f"the header is no JSON ({str(error)[:80]})") from error
    if not isinstance(header, dict):
        raise source.damaged("the header is no JSON object")
    return header, 8 + length


def _once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name[:80]!r} is there twice")
        name.encode()  # a lone surrogate is no text; UnicodeEncodeError is a ValueError
        found[name] = value
    return found


def _parsed(source: Source, name: str, value: Any) -> _Parsed:
    """Return a tensor's dtype, shape and offsets as the header has them."""
    try:
        dtype, shape, (begin, end) = value["dtype"], value["shape"], value["data_offsets"]
    except (TypeError, KeyError, ValueError):
        raise source.damaged(f"{name[:80]!r} lacks a dtype, shape or place") from None
    numbers = [begin, end, *shape] if isinstance(shape, list) else [None]
    if any(type(n) is not int or n < 0 for n in numbers) or end < begin:
        raise source.damaged(f"{name[:80]!r} has no sound shape or place")
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise source.damaged(f"{name[:80]!r} has the unknown dtype {str(dtype)[:40]!r}")
    return dtype, tuple(shape), begin, end


def _extras(source: Source, metadata: Any) -> dict[str, str]:
    """Return what the header says beside the tensors: texts, which may be long."""
    if metadata is None:
        return {}
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise source.damaged("the header's metadata are no texts")
    kept = list(metadata.items())[:_MOST_EXTRAS]
    return {k[:_LONGEST_VALUE]: v[:_LONGEST_VALUE] for k, v in kept}
