"""What checkpoints call things: the table of names, read once."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from migrate_kit.tables import read_table

if TYPE_CHECKING:
    from collections.abc import Mapping


class Known(NamedTuple):
    """A known name: what to call it instead, and what it tells."""

    becomes: str
    meaning: str


@cache
def vocabulary(kind: str) -> Mapping[str, Known]:
    """Return the known names of one kind: wrapper, leaf, role, word, extra, buffer, quantized.

    Examples
    --------
    >>> vocabulary("leaf")["gamma"].becomes
    'weight'
    """
    rows = [row for row in read_table("checkpoint_names") if row["kind"] == kind]
    return {row["text"]: Known(row["becomes"], row["meaning"]) for row in rows}


# What a layer calls its own tensors.
_LEAF = re.compile(
    r"weight|bias|running_mean|running_var|num_batches_tracked|gamma|beta|_extra_state"
    r"|weight_[guv]|weight_orig|(?:weight|bias)_(?:ih|hh|hr)_l\d+(?:_reverse)?"
)


def split_name(name: str) -> tuple[str, str]:
    """Return the layer that a tensor belongs to, and what the layer calls it.

    A tensor whose name says nothing is a layer of its own.

    Examples
    --------
    >>> split_name("layer1.0.conv1.weight"), split_name("attn.in_proj_weight")
    (('layer1.0.conv1', 'weight'), ('attn.in_proj', 'weight'))
    >>> split_name("conv.parametrizations.weight.original0"), split_name("encoder.pos_embed")
    (('conv', 'parametrizations.weight.original0'), ('encoder.pos_embed', ''))
    """
    path, parametrized, rest = name.partition(".parametrizations.")
    if parametrized:
        return path, f"parametrizations.{rest}"
    path, _, leaf = name.rpartition(".")
    if _LEAF.fullmatch(leaf):
        return path, leaf
    for end in ("weight", "bias"):
        if leaf.endswith(f"_{end}"):
            return name.removesuffix(f"_{end}"), end
    return name, ""


def join_name(path: str, leaf: str) -> str:
    """Return the name of a layer's tensor; a network that is one layer has no path.

    Examples
    --------
    >>> join_name("fc", "bias"), join_name("", "bias")
    ('fc.bias', 'bias')
    """
    return f"{path}.{leaf}" if path else leaf


def words_of(path: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the words and the numbers in a path, what frameworks call by several words as one.

    Examples
    --------
    >>> words_of("_blocks.3._bn0"), words_of("blocks.1.1.norm1")
    ((('blocks', 'norm'), (3, 0)), (('blocks', 'norm'), (1, 1, 1)))
    """
    known = vocabulary("word")
    roles = vocabulary("role")
    words: list[str] = []
    for part in path.split("."):
        if part in roles:
            words.append(f"<{roles[part].becomes}>")
            continue
        found = [w.lower() for w in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", part)]
        words += [known[w].becomes if w in known else w for w in found]
    return tuple(words), tuple(int(n) for n in re.findall(r"\d+", path))
