"""Checkpoints in several files: the index, or the folder, of safetensors or .bin shards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migrate_kit.checkpoints.state import Contents, Entry, StateDict
from migrate_kit.errors import MigrateError
from migrate_kit.results import Finding, few

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_BYTES = 256 << 20
# Hugging Face's names first, then what a training folder holds if it holds one such file.
_INDICES = ("*.safetensors.index.json", "*.bin.index.json")
_SINGLE = (
    "*.safetensors", "*.bin", "*.pth", "*.pt", "*.ckpt", "*.index",
    "variables/variables.index",  # of a SavedModel
)  # fmt: skip


def is_index(head: bytes) -> bool:
    """Whether a file begins as JSON that may be an index of shards."""
    return head.lstrip()[:1] == b"{"


def in_folder(folder: Path) -> Path:
    """Return the one file that a folder of weights is loaded by.

    Raises
    ------
    MigrateError
        If there is none, or more than one.
    """
    for pattern in (*_INDICES, *_SINGLE):
        found = sorted(p for p in folder.glob(pattern) if p.is_file())
        if len(found) == 1:
            return found[0]
        if found:
            names = few([p.name for p in found], 5)
            raise MigrateError(f"more than one file of weights: {names}", str(folder), "name one")
    raise MigrateError(
        "no file of weights in the folder", str(folder), f"it needs one of {', '.join(_SINGLE)}"
    )


def read_index(path: Path, load: Callable[[Path], Contents]) -> Contents:
    """Return the tensors of all shards that an index names.

    Raises
    ------
    MigrateError
        If it is no index, or a shard is missing, or lacks a tensor that it should hold.
    """
    places = _weight_map(path)
    shards: dict[str, Contents] = {}
    missing = sorted({f for f in places.values() if not (path.parent / f).is_file()})
    if missing:
        raise MigrateError(
            f"{len(missing)} of {len(set(places.values()))} shards are missing: {few(missing)}",
            str(path),
            "copy them into the index's folder",
        )
    for file in dict.fromkeys(places.values()):
        shards[file] = load(path.parent / file)
    entries: dict[str, Entry] = {}
    for name, file in places.items():
        entry = shards[file].state_dict.entries.get(name)
        if entry is None:
            raise MigrateError(
                f"the shard {file} lacks {name[:100]!r}, which the index places there",
                str(path),
                "copy the index and its shards from one place again",
            )
        entries[name] = entry
    found = Contents(
        f"sharded {next(iter(shards.values())).format}", "state_dict", StateDict(entries)
    )
    extra = {n for c in shards.values() for n in c.state_dict} - set(entries)
    if extra:
        found.findings.append(
            Finding("warning", f"tensors that the index does not name: {few(sorted(extra))}")
        )
    for contents in shards.values():
        found.findings += contents.findings
        found.wanted += contents.wanted
    found.extras = {"shards": str(len(shards))}
    return found


def _weight_map(path: Path) -> dict[str, str]:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError("it is larger than 256 MiB")
        parsed: Any = json.loads(path.read_text(encoding="utf-8"))
        places = parsed["weight_map"]
        if not isinstance(places, dict) or not places:
            raise TypeError("weight_map is no table of names and files")
        for file in places.values():
            if not isinstance(file, str) or Path(file).name != file or "\0" in file:
                raise ValueError(f"the file {str(file)[:80]!r} is not in its folder")
    except (OSError, ValueError, TypeError, LookupError, RecursionError) as error:
        raise MigrateError(
            f"a text file of JSON, and no index of shards: {type(error).__name__}: {error}",
            str(path),
            "name the file of the weights, or an index with a weight_map",
        ) from error
    return places
