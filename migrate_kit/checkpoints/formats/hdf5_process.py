"""Answer questions about HDF5 files in a process of its own; ``hdf5_reader`` starts it as a script.

A damaged file can keep the HDF5 library reading for ever: of 40,000 that were mutated one did, with
HDF5 2.0, and took all memory. So each question is answered by a fork with limits.

A question is a line of JSON: the path, and the name of a dataset or null for the list of them. The
answer is a line of JSON with its size and what went wrong, and that many bytes.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
import tempfile
from importlib import import_module
from typing import IO, Any

_MOST_LINKS = 200_000
_LONGEST_TEXT = 200
_TEXTS = ("keras_version", "backend")
# No filter of a file shrinks more: deflate, by 1032 (zlib's manual).
_RATIO = 1100
_SLACK = 1 << 16
_SECONDS = 30
_MEMORY = 1 << 30
# Bytes a second that even a slow disk gives.
_PACE = 20_000_000


class _RefusedError(Exception):
    """What the file asks for is refused; the text says why."""


def _library() -> Any:
    return import_module("h5py")


def serve() -> None:
    """Answer until nobody asks any more."""
    _library()  # once, before any fork
    for line in sys.stdin.buffer:
        with tempfile.TemporaryFile() as out:
            status = _forked(json.loads(line), out)
            answer = {"size": out.tell(), "error": ""}
            if status:
                out.seek(0)
                text = out.read(_LONGEST_TEXT * 4).decode("utf-8", "replace")
                answer = {"size": 0, "error": text if status == 1 else "the library does not end"}
            sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
            if not status:
                out.seek(0)
                shutil.copyfileobj(out, sys.stdout.buffer)
            sys.stdout.buffer.flush()


def _forked(question: dict[str, Any], out: IO[bytes]) -> int:
    """Answer in a fork; 0 if it did, 1 if it wrote an error instead, else how it ended."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            _limit(0)
            _answer(question, out)
            status = 0
        except BaseException as error:  # noqa: BLE001 - whatever the library raises is the answer
            out.seek(0)
            out.truncate()
            out.write(str(error).encode("utf-8", "replace")[: _LONGEST_TEXT * 4])
        finally:
            out.flush()
            os._exit(status)
    _, ended = os.waitpid(child, 0)
    # The fork moved the place in the file, which both share.
    return ended if os.WIFSIGNALED(ended) else os.WEXITSTATUS(ended)


def _limit(size: int) -> None:
    signal.alarm(_SECONDS + size // _PACE)
    # A question for the list has a hard limit that a dataset of this size may raise.
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = _MEMORY + 3 * size
    resource.setrlimit(
        resource.RLIMIT_DATA,
        (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard),
    )


def _answer(question: dict[str, Any], out: IO[bytes]) -> None:
    # No lock: a file that is only read may lie on a disk that has none.
    with _library().File(question["path"], "r", locking=False) as file:
        if question["dataset"] is None:
            out.write(json.dumps(_listing(file)).encode())
        else:
            _values(file[question["dataset"]], out)


def _listing(file: Any) -> dict[str, Any]:
    """Return the datasets, followed along hard links alone and into each group once."""
    h5py = _library()
    datasets: dict[str, Any] = {}
    other: list[str] = []
    seen: set[Any] = set()
    groups: list[tuple[str, Any]] = [("", file.id)]
    links = 0
    while groups:
        prefix, group = groups.pop()
        for raw in group:
            links += 1
            if links > _MOST_LINKS:
                raise _RefusedError(f"more than {_MOST_LINKS:,} names")
            name = prefix + raw.decode("utf-8")
            if group.links.get_info(raw).type != h5py.h5l.TYPE_HARD:
                other.append(name)
                continue
            object_id = h5py.h5o.open(group, raw)
            if isinstance(object_id, h5py.h5g.GroupID):
                place = h5py.h5o.get_info(object_id).addr
                if place not in seen:
                    seen.add(place)
                    groups.append((f"{name}/", object_id))
            elif isinstance(object_id, h5py.h5d.DatasetID):
                found = _described(object_id)
                if found is None:
                    other.append(name)
                else:
                    datasets[name] = found
    return {"datasets": datasets, "other": other, "texts": _attributes(file)}


def _described(dataset: Any) -> dict[str, Any] | None:
    """Return what a dataset is, or None if it holds no numbers of its own."""
    h5py = _library()
    plist, space, kind = dataset.get_create_plist(), dataset.get_space(), dataset.get_type()
    if plist.get_layout() == h5py.h5d.VIRTUAL or plist.get_external_count():
        return None  # the values are in another file
    if space.get_simple_extent_type() == h5py.h5s.NULL or kind.get_class() == h5py.h5t.REFERENCE:
        return None
    dtype = dataset.dtype
    if dtype.kind not in "biufc" or dtype.names or dtype.subdtype:
        return None
    size = dtype.itemsize
    for length in space.shape:
        size *= length
    # Only what the file holds exactly as NumPy does can be mapped. What was never written has no
    # place, though behind a user's block the library names one.
    plain = kind.equal(h5py.h5t.py_create(dtype, logical=True))
    plain = plain and dataset.get_storage_size() == size
    return {
        "shape": list(space.shape),
        "dtype": dtype.str,
        "offset": dataset.get_offset() if plain else None,
    }


def _attributes(file: Any) -> dict[str, str]:
    found = {}
    for name in _TEXTS:
        if name in file.attrs and file.attrs.get_id(name).get_storage_size() < _SLACK:
            value = file.attrs[name]
            text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
            found[name] = text[:_LONGEST_TEXT]
    return found


def _values(dataset: Any, out: IO[bytes]) -> None:
    """Write a dataset's values, little endian."""
    import numpy as np

    chunks, shape, held = dataset.chunks, dataset.shape, dataset.id.get_storage_size()
    wanted = dataset.dtype.newbyteorder("<")
    most = max(held * _RATIO, _SLACK)
    size, chunk = wanted.itemsize, wanted.itemsize
    for length in shape:
        size *= length
    for length in chunks or ():
        chunk *= length
    if chunks is not None and len(chunks) != len(shape):
        raise _RefusedError(f"chunks of the shape {chunks} in a dataset of the shape {shape}")
    if size > most or chunk > most:
        raise _RefusedError(f"{size:,} bytes, of which the file holds {held:,}")
    _limit(size)
    values = np.empty(shape, wanted)
    if size:
        everything = _library().h5s.ALL
        dataset.id.read(everything, everything, values)
    values.tofile(out)


if __name__ == "__main__":
    # The folder of this script has modules whose names others may mean.
    sys.path.pop(0)
    serve()
