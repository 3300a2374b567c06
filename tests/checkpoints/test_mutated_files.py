"""Files from strangers: whatever bytes change, a reader reads them or gives a MigrateError.

A thousand mutations of a small sound file of each format, the same ones every time. More, and
others: ``MIGRATE_KIT_MUTATIONS=20000 pytest tests/checkpoints/test_mutated_files.py``.
"""

import contextlib
import os
import resource
import signal
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from migrate_kit.checkpoints.formats import refusals
from migrate_kit.checkpoints.formats.source import Source
from migrate_kit.errors import MigrateError
from tests.checkpoints.bases import BASES

MANY = int(os.environ.get("MIGRATE_KIT_MUTATIONS", "0"))
SETTINGS = settings(
    max_examples=MANY or 1000,
    derandomize=not MANY,
    database=None,
    deadline=None,
    phases=[Phase.generate] if not MANY else [Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)
# A file of a few kilobytes is refused or read within these; HDF5 is given 30 s of them.
SECONDS = 40
MEMORY = 3 << 30
# Lengths and counts that a damaged file claims.
NUMBERS = [
    b"\xff\xff\xff\xff\x07", b"\xff" * 9 + b"\x01", b"\x80" * 10, b"\x7f", b"\xff\x7f", b"\0" * 8,
    b"\xff" * 8, b"\xff\xff\xff\x7f\0\0\0\0", b"\0\0\0\0\0\0\0\x80", b"99999999999", b"-1", b"[[[[",
    b"1e9", b"\x00\x00\x00\x40",
]  # fmt: skip
PLACE = st.floats(0, 1, exclude_max=True)
CHANGE = st.one_of(
    st.tuples(st.just("flip"), PLACE, st.integers(0, 7)),
    st.tuples(st.just("byte"), PLACE, st.integers(0, 255)),
    st.tuples(st.just("add"), PLACE, st.integers(-3, 3)),
    st.tuples(st.just("number"), PLACE, st.sampled_from(NUMBERS)),
    st.tuples(st.just("insert"), PLACE, st.binary(min_size=1, max_size=12)),
    st.tuples(st.just("remove"), PLACE, st.integers(1, 40)),
    st.tuples(st.just("copy"), PLACE, st.tuples(PLACE, st.integers(1, 60))),
    st.tuples(st.just("cut"), PLACE, st.none()),
)


def changed(content, changes):
    """Return the bytes after some changes."""
    data = bytearray(content)
    for kind, place, value in changes:
        if not data:
            break
        at = int(place * len(data))
        if kind == "flip":
            data[at] ^= 1 << value
        elif kind == "byte":
            data[at] = value
        elif kind == "add":
            data[at] = (data[at] + value) % 256
        elif kind == "number":
            data[at : at + len(value)] = value
        elif kind == "insert":
            data[at:at] = value
        elif kind == "remove":
            del data[at : at + value]
        elif kind == "copy":
            start = int(value[0] * len(data))
            data[at:at] = data[start : start + value[1]]
        else:
            del data[at:]
    return bytes(data)


@contextlib.contextmanager
def limits():
    """Let nothing take long, or much memory."""

    def too_long(*_):
        # No TimeoutError: that is an OSError, which a reader may take for its own.
        raise AssertionError(f"more than {SECONDS} s")

    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(SECONDS)
    resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY, hard))
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def use(path, reader):
    """List the file, and read every tensor that is listed; say whether all went well."""
    try:
        source = Source(path)
        reader.recognises(source)
        refusals.refusal_of(source)
        found = reader.read(source)
        for state in (found.state_dict, *found.parts.values()):
            for name, entry in state.entries.items():
                tensor = state[name]
                assert (tuple(tensor.shape), tensor.dtype) == (entry.shape, entry.dtype)
        repr(found.state_dict), [str(finding) for finding in found.findings]
    except MigrateError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("name", BASES)
def test_a_mutated_file_is_read_or_refused(name, tmp_path):
    base = BASES[name]()
    path = base.put(tmp_path)
    reader = import_module(f"migrate_kit.checkpoints.formats.{base.reader}")
    assert use(path, reader)
    read = []

    @SETTINGS
    @given(st.sampled_from(sorted(base.files)), st.lists(CHANGE, min_size=1, max_size=4))
    def run(file, changes):
        target = tmp_path / file
        target.write_bytes(changed(base.files[file], changes))
        try:
            with limits():
                read.append(use(path, reader))
        finally:
            target.write_bytes(base.files[file])

    run()
    # Neither everything nor nothing: the changes reach behind the first check.
    assert 0 < sum(read) < len(read)


@pytest.mark.parametrize("name", BASES)
def test_a_file_cut_at_any_place_is_refused_or_read(name, tmp_path):
    base = BASES[name]()
    path = base.put(tmp_path)
    reader = import_module(f"migrate_kit.checkpoints.formats.{base.reader}")
    whole = base.files[base.main]
    for end in range(0, len(whole), max(1, len(whole) // 500)):
        path.write_bytes(whole[:end])
        with limits():
            use(path, reader)
