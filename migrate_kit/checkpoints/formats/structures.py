"""What a file without a signature is, told by its structure: protobuf messages and texts."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from migrate_kit.checkpoints.formats.wire import BYTES, FIXED32, VARINT, Field, Wire, fits

if TYPE_CHECKING:
    from collections.abc import Callable

    from migrate_kit.checkpoints.formats.source import Source

_HEAD: Final = 4096
_MOST_JSON: Final = 1 << 20
_LFS: Final = re.compile(rb"version https://git-lfs\.github\.com/spec/v1\s")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
# MindIR's ModelProto has ONNX's numbers, but both versions are texts.
_MINDIR: Final = {
    1: BYTES,
    2: BYTES,
    3: BYTES,
    4: BYTES,
    5: BYTES,
    6: BYTES,
    7: BYTES,
    8: BYTES,
    9: BYTES,
} | {10: VARINT, 11: BYTES, 12: BYTES, 13: VARINT, 14: BYTES}
# ProgramDesc: 1 blocks, 4 version, 5 op_version_map. BlockDesc: 1 idx, 2 parent, 3 vars, 4 ops.
_PROGRAM: Final = {1: BYTES, 2: BYTES, 3: BYTES, 4: BYTES, 5: BYTES}
_BLOCK: Final = {1: VARINT, 2: VARINT, 3: BYTES, 4: BYTES, 5: VARINT}
# Core ML's Model: 1 version, 2 description, 10 isUpdatable, and one of the types from 200 on.
_CORE_ML: Final = {1: VARINT, 2: BYTES, 10: VARINT} | dict.fromkeys(range(200, 3001), BYTES)
_META_GRAPH: Final = dict.fromkeys(range(1, 8), BYTES)
_META_INFO: Final = {**dict.fromkeys(range(1, 9), BYTES), 7: VARINT}
_SOLVER: Final = {1: VARINT, 2: BYTES, 3: BYTES, 4: VARINT}
_BLOB: Final = {1: VARINT, 2: VARINT, 3: VARINT, 4: VARINT, 5: -1, 6: -1, 7: BYTES, 8: -1, 9: -1}
_PIECES: Final = {1: BYTES, 2: BYTES, 3: BYTES, 4: BYTES, 5: BYTES}
_PIECE: Final = {1: BYTES, 2: FIXED32, 3: VARINT}


def text_of(source: Source) -> str:
    """Return the beginning of a text, or nothing if it is none."""
    head = source.head(_HEAD)
    text = head.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    # A character may be cut in two at the end of the head, not of the file.
    text = text[:-3] if len(head) == _HEAD else text
    return "" if _CONTROL.search(text) or "\N{REPLACEMENT CHARACTER}" in text else text


def lfs_size(source: Source) -> int | None:
    r"""Return the size that a Git LFS pointer states, or None if it is no pointer.

    Examples
    --------
    >>> from pathlib import Path
    >>> from migrate_kit.checkpoints.formats.source import Source
    >>> text = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 248007048\n"
    >>> lfs_size(Source.of_bytes(Path("yolov3.weights"), text))
    248007048
    """
    head = source.head(_HEAD)
    if not _LFS.match(head):
        return None
    found = re.search(rb"^size (\d{1,18})$", head, re.MULTILINE)
    return int(found[1]) if found else 0


def said(source: Source) -> str:
    """Return what an error message in JSON says, or the first line of a text."""
    found = _json(source) if source.size <= _MOST_JSON else None
    if isinstance(found, dict):
        for key in ("error", "message", "detail", "msg", "errors"):
            if found.get(key):
                return str(found[key])
    return next((line for line in text_of(source).splitlines() if line.strip()), "").strip()


def _json(source: Source) -> Any:
    try:
        return json.loads(source.head(_MOST_JSON))
    except (ValueError, RecursionError):
        return None


def _is_mindir(source: Source) -> bool:
    wire, found = _begin(source)
    first = {field.number: field for field in reversed(found)}
    return fits(found, _MINDIR) and {1, 2, 7} <= first.keys() and _is_version(wire, first[1])


def _is_version(wire: Wire, field: Field) -> bool:
    return bool(re.fullmatch(rb"[0-9][0-9a-z.\-+]*", wire.head(field)))


def _is_program(source: Source) -> bool:
    wire, found = _begin(source)
    if not fits(found, _PROGRAM) or found[0].number != 1:
        return False
    block = wire.begin(found[0])
    numbers = {field.number for field in block}
    return fits(block, _BLOCK) and {1, 2} <= numbers and block[0].value == 0


def _is_core_ml(source: Source) -> bool:
    _, found = _begin(source)
    return fits(found, _CORE_ML) and found[0].number == 1 and found[-1].number >= 200


def _is_meta_graph(source: Source) -> bool:
    wire, found = _begin(source)
    if not fits(found, _META_GRAPH) or [f.number for f in found[:2]] != [1, 2]:
        return False
    return fits(wire.begin(found[0]), _META_INFO) and _begins_with_node(wire, found[1])


def _begins_with_node(wire: Wire, graph: Field) -> bool:
    nodes = wire.begin(graph, 1)
    inner = wire.begin(nodes[0]) if nodes and nodes[0].kind == BYTES else []
    return fits(inner, dict.fromkeys(range(1, 8), BYTES)) and {1, 2} <= {f.number for f in inner}


def _is_solver_state(source: Source) -> bool:
    wire, found = _begin(source)
    histories = [field for field in found if field.number == 3]
    if not fits(found, _SOLVER) or not histories or found[0].number != 1:
        return False
    return fits(wire.begin(histories[0]), _BLOB)


def _is_sentencepiece(source: Source) -> bool:
    wire, found = _begin(source)
    if not fits(found, _PIECES) or [f.number for f in found[:2]] != [1, 1]:
        return False
    return all(fits(p := wire.begin(f), _PIECE) and len(p) > 1 for f in found[:2])


def _begin(source: Source) -> tuple[Wire, list[Field]]:
    wire = Wire(source)
    return wire, wire.begin(wire.root, 50)


def _is_html(source: Source) -> bool:
    text = text_of(source).lstrip().lower()
    return text.startswith(("<!doctype html", "<html", "<head", "<body"))


def _is_openvino(source: Source) -> bool:
    text = text_of(source).lstrip()
    return text.startswith("<") and bool(re.match(r"(<\?xml[^>]*\?>\s*)?<net\s", text))


def _is_zeros(source: Source) -> bool:
    head = source.head(_HEAD)
    return len(head) == _HEAD and not head.strip(b"\0")


# By the names of the table.
STRUCTURES: Final[dict[str, Callable[[Source], bool]]] = {
    "Git LFS pointer": lambda source: lfs_size(source) is not None,
    "MindIR": _is_mindir,
    "Paddle program": _is_program,
    "Core ML": _is_core_ml,
    "TensorFlow MetaGraph": _is_meta_graph,
    "Caffe solver state": _is_solver_state,
    "SentencePiece": _is_sentencepiece,
    "OpenVINO": _is_openvino,
    "HTML": _is_html,
    "JSON": lambda source: source.size <= _MOST_JSON and isinstance(_json(source), dict | list),
    "XML": lambda source: text_of(source).lstrip().startswith("<?xml"),
    "zeros": _is_zeros,
    "text": lambda source: bool(text_of(source).strip()),
}
