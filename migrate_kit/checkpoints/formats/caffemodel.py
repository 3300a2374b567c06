"""Caffe's .caffemodel: a NetParameter whose layers hold blobs.

Blob 0 and 1 of a layer whose type has a weight and a bias are ``<layer>.weight`` and
``<layer>.bias``; the blobs of any other type, BatchNorm's mean, variance and factor among them, are
``<layer>.blobs.0`` and so on. A blob of the old four lengths drops leading ones until it has as
many as its role: two for the weight of InnerProduct, one for a bias or PReLU's slope.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import torch

from migrate_kit.checkpoints.formats.beside import no_weights
from migrate_kit.checkpoints.formats.repeated import Repeated, entry_of
from migrate_kit.checkpoints.formats.wire import (
    BYTES,
    FIXED32,
    FIXED64,
    VARINT,
    Field,
    Wire,
    fits,
)
from migrate_kit.checkpoints.state import Contents, Entry, StateDict
from migrate_kit.results import counted

if TYPE_CHECKING:
    from migrate_kit.checkpoints.formats.source import Source

# caffe.proto. NetParameter: 1 name, 2 layers (old), 3 input, 4 input_dim, 8 input_shape, 100 layer.
_NET: Final = {1: BYTES, 2: BYTES, 3: BYTES, 4: -1, 5: VARINT, 6: BYTES, 7: VARINT, 8: BYTES} | {
    100: BYTES
}
_LAYERS: Final = {100: (1, 2, 7), 2: (4, 5, 6)}  # the numbers of name, type and blobs
_NEW, _OLD = {1: BYTES, 2: BYTES, 7: BYTES}, {4: BYTES, 5: VARINT, 6: BYTES}
# BlobProto: 1-4 num, channels, height, width; 5 data, 7 shape, 8 double_data.
_BLOB: Final = {1: VARINT, 2: VARINT, 3: VARINT, 4: VARINT, 5: -1, 7: BYTES, 8: -1}
_TYPE: Final = re.compile(rb"[A-Za-z][A-Za-z0-9_]*")
# V1LayerParameter.LayerType, those with weights.
_OLD_TYPES: Final = {4: "Convolution", 14: "InnerProduct", 39: "Deconvolution"}
# The lengths that the weight of a type has; any bias has one.
_WITH_WEIGHT: Final = {
    "Convolution": 4,
    "Deconvolution": 4,
    "ConvolutionDepthwise": 4,
    "DepthwiseConvolution": 4,
    "InnerProduct": 2,
    "Embed": 2,
    "PReLU": 1,
    "Scale": 1,
    "Normalize": 1,
}


def recognises(source: Source) -> bool:
    """Whether it is a NetParameter with a layer that has a name and a type."""
    wire = Wire(source)
    found = wire.begin(wire.root, 50)
    layers = [field for field in found if field.number in _LAYERS]
    return fits(found, _NET) and bool(layers) and _is_layer(wire, layers[0])


def _is_layer(wire: Wire, field: Field) -> bool:
    name, kind, _ = _LAYERS[field.number]
    known = {f.number: f for f in wire.begin(field, 30)}
    if name not in known or kind not in known or known[name].kind != BYTES:
        return False
    if field.number == 2:
        return known[kind].kind == VARINT and known[kind].value < 200
    return known[kind].kind == BYTES and bool(_TYPE.fullmatch(wire.head(known[kind])))


def read(source: Source) -> Contents:
    """List the blobs of all layers."""
    wire = Wire(source)
    entries: dict[str, Entry] = {}
    extras: dict[str, str] = {}
    layers = 0
    for field in wire.fields(wire.root, "the network", _NET):
        if field.number == 1:
            extras["network"] = wire.text(field, "the name of the network")[:200]
        if field.number in _LAYERS:
            layers += 1
            for name, entry in _layer(wire, field).items():
                if name in entries:
                    raise source.damaged(f"{name[:80]!r} is there twice")
                entries[name] = entry
    found = Contents("caffemodel", "weights", StateDict(entries), extras)
    if not entries:
        what = f"{counted(layers, 'layer')} and no blobs"
        found.findings.append(no_weights(source, what, "give the trained .caffemodel"))
    return found


def _layer(wire: Wire, field: Field) -> dict[str, Entry]:
    number, kind_number, blobs_number = _LAYERS[field.number]
    name, kind, blobs = "", "", []
    schema = _NEW if field.number == 100 else _OLD
    for inner in wire.fields(field, "a layer", schema):
        if inner.number == number:
            name = wire.text(inner, "the name of a layer")
        elif inner.number == blobs_number:
            blobs.append(inner)
        elif inner.number == kind_number and inner.kind == BYTES:
            kind = wire.text(inner, "the type of a layer")
        else:
            kind = _OLD_TYPES.get(inner.value, "")
    entries = {}
    for index, blob in enumerate(blobs):
        lengths, part = 0, f"blobs.{index}"
        if kind in _WITH_WEIGHT and index < 2:
            lengths = 1 if index else _WITH_WEIGHT[kind]
            part = "bias" if index else "weight"
        entries[f"{name}.{part}"] = _blob(wire, blob, f"{name[:80]!r}, {part}", lengths)
    return entries


def _blob(wire: Wire, blob: Field, what: str, lengths: int) -> Entry:
    """Return a blob; ``lengths`` is how many an old one should have, 0 for all four."""
    old = [1, 1, 1, 1]
    shape: tuple[int, ...] | None = None
    singles = Repeated(wire, FIXED32, what)
    doubles = Repeated(wire, FIXED64, what)
    is_old = False
    for field in wire.fields(blob, what, _BLOB):
        if field.number < 5:
            old[field.number - 1], is_old = field.signed, True
        elif field.number == 7:
            dims = Repeated(wire, VARINT, what)
            for inner in wire.fields(field, what, {1: -1}):
                dims.add(inner)
            shape = dims.shape()
        else:
            (singles if field.number == 5 else doubles).add(field)
    if shape is None:
        while is_old and lengths and len(old) > lengths and old[0] == 1:
            old.pop(0)
        shape = tuple(old) if is_old else ()
    values, dtype = (doubles, torch.float64) if doubles.most else (singles, torch.float32)
    return entry_of(values, dtype, shape)
