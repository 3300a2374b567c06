"""Darknet ``.weights``: a short header, then every float of the network in the order of its cfg."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from migrate_kit.checkpoints.formats.darknet_cfg import read_cfg
from migrate_kit.checkpoints.formats.darknet_layers import HEADS
from migrate_kit.checkpoints.formats.darknet_sections import plan_network
from migrate_kit.checkpoints.state import Contents, Entry, StateDict
from migrate_kit.errors import MigrateError
from migrate_kit.results import Finding, few
from migrate_kit.tables import read_table

if TYPE_CHECKING:
    from migrate_kit.checkpoints.formats.darknet_layers import Plan
    from migrate_kit.checkpoints.formats.source import Source

_HEADERS = (20, 16)
_LOOKED_AT = 64


@dataclass(frozen=True)
class Header:
    """What stands before the floats.

    Attributes
    ----------
    length : int
        20, or 16 where the counter of images has 4 bytes.
    version : str
    seen : int
        How many images the network was trained on.
    transposed : bool
        Whether fully connected weights have one row an input.
    """

    length: int
    version: str
    seen: int
    transposed: bool


@dataclass(frozen=True)
class Fit:
    """How a file and a network fit.

    Attributes
    ----------
    header : Header
    plan : Plan
        The network, or its first layers where the file holds no more.
    missing : int
        How many layers of the network the file holds nothing of.
    optional : bool
        Whether ``[batchnorm]`` layers have a bias.
    """

    header: Header
    plan: Plan
    missing: int
    optional: bool


def headers(source: Source) -> list[Header]:
    """Return both ways of reading the header, the one its version asks for first."""
    if source.size < 20 or source.size % 4:
        raise source.damaged(
            f"{source.size:,} bytes are no header and a whole number of floats of a .weights file"
        )
    major, minor, revision = struct.unpack("<3i", source.bytes(0, 12, "the header"))
    found = []
    for length in _HEADERS:
        seen = int.from_bytes(source.bytes(12, length - 12, "the header"), "little")
        transposed = major > 1000 or minor > 1000
        found.append(Header(length, f"{major}.{minor}.{revision}", seen, transposed))
    return found if major * 10 + minor >= 2 else found[::-1]


def stock_networks(floats: int) -> list[str]:
    """Return the names of the public networks with this many floats.

    Examples
    --------
    >>> stock_networks(8_858_734)
    ['yolov3-tiny']
    """
    rows = read_table("darknet_networks")
    return [row["network"] for row in rows if int(row["floats"]) == floats]


def fit(source: Source, plan: Plan) -> Fit:
    """Compare the floats behind the header that the version asks for with the network's.

    The other header is not tried: a file that lacks its last float would begin with half of the
    counter of images as its first one.

    Raises
    ------
    MigrateError
        If there is none; it says both counts, and which public network has the file's.
    """
    both = headers(source)
    floats = (source.size - both[0].length) // 4
    for optional in (False, True):
        if floats == plan.floats(optional):
            return Fit(both[0], plan, 0, optional)
    for optional in (False, True):
        first = _first_layers(plan, floats, optional)
        if first:
            missing = len(plan.layers) - len(first.layers)
            return Fit(both[0], first, missing, optional)
    raise _unfit(source, plan, both)


def _first_layers(plan: Plan, floats: int, optional: bool) -> Plan | None:
    """Return the first layers that have just so many floats, as in ``darknet53.conv.74``."""
    count = 0
    for index, layer in enumerate(plan.layers):
        own = sum(p.count for p in layer.parts if optional or not p.optional)
        if own and 0 < count == floats:
            return plan.first(index)
        count += own
    return None


def _unfit(source: Source, plan: Plan, both: list[Header]) -> MigrateError:
    counts = [(source.size - header.length) // 4 for header in both]
    names = [name for count in counts for name in stock_networks(count)]
    classes = [n for count in counts for n in [_classes(plan, count)] if n]
    fix = "take the .cfg the network was trained with, its number of classes included"
    if counts[1] == plan.floats(optional=False):
        fix = (
            f"version {both[0].version} has a header of {both[0].length} bytes: the file is cut or "
            "has a float too many; copy it again, or give it the version of its header"
        )
    elif names:
        fix = f"take the .cfg of {few(names, 6)}: it has the file's number of floats"
    elif classes:
        fix = (
            f"with classes={classes[0]} in every head, and filters= before it to match, this .cfg "
            "has the file's number of floats"
        )
    elif counts[0] < plan.floats(optional=False):
        fix += "; if it is that one, the file is not complete: compare its size with the original"
    return MigrateError(
        f"the .cfg needs {plan.floats(optional=False):,} floats, the file holds {counts[0]:,} "
        f"after a header of {both[0].length} bytes ({counts[1]:,} after one of {both[1].length})",
        str(source.path),
        fix,
    )


def _classes(plan: Plan, floats: int) -> int | None:
    """Return the number of classes with which the network has so many floats, if any."""
    heads = [layer for layer in plan.layers if layer.kind in HEADS]
    feeding = [plan.layers[head.inputs[0]] for head in heads]
    if not heads or any(layer.kind != "convolutional" for layer in feeding):
        return None
    each = sum(
        len(head.settings["anchors"]) * (layer.parts[-1].count // layer.shape[0] + 1)
        for head, layer in zip(heads, feeding, strict=True)
    )
    more, rest = divmod(floats - plan.floats(optional=False), each)
    classes = int(heads[0].settings["classes"]) + more
    return classes if rest == 0 and classes > 0 else None


def entries(source: Source, found: Fit) -> dict[str, Entry]:
    """Return the tensors under the names of :class:`DarknetNetwork`."""
    result, offset = {}, found.header.length
    for index, part in found.plan.parts(found.optional):
        name = f"models.{index}.{part.name}"
        entry = source.entry(torch.float32, part.shape, offset, name)
        layer = found.plan.layers[index]
        turned = layer.settings.get("flipped") or (
            layer.kind == "connected" and found.header.transposed
        )
        if turned and part.name.endswith("weight") and len(part.shape) > 1:
            entry = Entry(part.shape, torch.float32, partial(_turned, entry))
        result[name] = entry
        offset += 4 * part.count
    return result


def _turned(entry: Entry) -> torch.Tensor:
    return entry.read().reshape(-1, entry.shape[0]).T.reshape(entry.shape).contiguous()


def findings(found: Fit) -> list[Finding]:
    """Return what there is to say about how the file and the network fit."""
    result = [
        Finding(
            "warning",
            f"{few(layer.section.again)} stands there twice: Darknet takes the first",
            layer.section.title,
            "take the other out of the .cfg",
        )
        for layer in found.plan.layers
        if layer.section.again
    ]
    if found.missing:
        here = len(found.plan.layers)
        result.append(
            Finding(
                "warning",
                f"the file holds the first {here} of {here + found.missing} layers",
                f"layer {here}",
                "such a file (darknet53.conv.74) is where training starts; the other layers have "
                "no weights",
            )
        )
    return result


def recognises(source: Source) -> bool:
    """Whether it begins like a .weights file, and goes on with floats.

    It has no signature: this is asked last.
    """
    if source.size < 24 or source.size % 4:
        return False
    major, minor, revision = struct.unpack("<3i", source.head(12))
    if major != 0 or minor not in (1, 2) or not 0 <= revision <= 99:
        return False
    count = min(_LOOKED_AT, (source.size - 20) // 4)
    values = struct.unpack(f"<{count}f", source.bytes(20, 4 * count, "the first floats"))
    return all(math.isfinite(value) and abs(value) < 1e6 for value in values)


def read(source: Source) -> Contents:
    """List the tensors, where a ``.cfg`` of the same name lies beside the file.

    Without one its floats are one tensor, ``weights``: the file does not say where a layer ends.
    """
    cfg = source.path.with_suffix(".cfg")
    header = headers(source)[0]
    contents = Contents("Darknet weights", "weights", StateDict({}))
    contents.extras["trained on"] = f"{header.seen:,} images"
    if cfg.is_file():
        try:
            found = fit(source, plan_network(read_cfg(cfg)))
        except MigrateError as error:
            contents.findings.append(Finding("warning", error.what, error.where, error.fix))
        else:
            contents.state_dict = StateDict(entries(source, found))
            contents.findings += findings(found)
            return contents
    count = (source.size - header.length) // 4
    entry = source.entry(torch.float32, (count,), header.length, "weights")
    contents.state_dict = StateDict({"weights": entry})
    contents.findings.append(_nameless(count, Path(cfg).name))
    return contents


def _nameless(count: int, cfg: str) -> Finding:
    names = stock_networks(count)
    which = f"so many has {few(names, 6)}" if names else "no public network has so many"
    return Finding(
        "info",
        f"{count:,} floats without names: {which}",
        "",
        f"put the network's .cfg beside the file as {cfg}, or call "
        "mk.convert_weights('yolov3', weights, out, cfg=...)",
    )
