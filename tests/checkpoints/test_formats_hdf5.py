"""HDF5 files, against h5py."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from types import SimpleNamespace

import h5py
import numpy as np
import pytest
import torch

from migrate_kit.checkpoints.formats import hdf5, hdf5_process, hdf5_reader
from migrate_kit.checkpoints.formats.source import Source
from migrate_kit.errors import MigrateError


def read(path):
    source = Source(path)
    assert hdf5.recognises(source)
    return hdf5.read(source)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.h5"


@pytest.mark.parametrize("version", ["earliest", "latest"])
@pytest.mark.parametrize("block", [0, 512, 2048])
def test_everything_is_what_h5py_reads(path, version, block):
    rng = np.random.default_rng(0)
    with h5py.File(path, "w", libver=version, userblock_size=block) as file:
        for kind in ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?", "c8"):
            file[f"plain/{kind}"] = (rng.standard_normal((2, 3)) * 5).astype(kind)
        file["big"] = np.arange(4, dtype=">f4")
        file["scalar"], file["empty"] = np.float32(2.5), np.zeros((0, 3), "f4")
        values = rng.standard_normal((20, 30)).astype("f4")
        file.create_dataset("gzip", data=values, chunks=(7, 8), compression="gzip", shuffle=True)
        file.create_dataset("chunks", data=values, chunks=(7, 8))
        file.create_dataset("late", (3,), "f4", fillvalue=1.5)
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple((3,))
        compact = h5py.h5d.create(file.id, b"compact", h5py.h5t.IEEE_F32LE, space, plist)
        compact.write(h5py.h5s.ALL, h5py.h5s.ALL, np.float32([1, 2, 3]))
    found = read(path)
    with h5py.File(path) as file:
        names = []
        file.visititems(lambda n, o: names.append(n) if isinstance(o, h5py.Dataset) else None)
        assert sorted(found.state_dict) == sorted(names)
        for name, tensor in found.state_dict.items():
            expected = file[name][()]
            assert tensor.shape == found.state_dict.entries[name].shape == expected.shape
            native = expected.astype(expected.dtype.newbyteorder("="))
            assert tensor.dtype == torch.from_numpy(np.asarray(native)).dtype
            assert np.array_equal(tensor.numpy(), expected)
    assert found.findings == []


def test_contiguous_ones_are_mapped_and_the_others_are_not(path):
    with h5py.File(path, "w") as file:
        file["a"] = np.arange(4, dtype="f4")
        file["again"] = file["a"]
        file.create_dataset("b", data=np.arange(4, dtype="f4"), chunks=(2,))
    entries = read(path).state_dict.entries
    assert entries["a"].memory is not None
    assert entries["a"].memory == entries["again"].memory
    assert entries["b"].memory is None


def test_keras_layout(path):
    with h5py.File(path, "w") as file:
        file.attrs["keras_version"], file.attrs["backend"] = "2.4.0", np.bytes_("tensorflow")
        file["model_weights/conv/conv/kernel:0"] = np.ones((3, 3, 1, 2), "f4")
        file["optimizer_weights/Adam/iter:0"] = np.int64(7)
        file["optimizer_weights/Adam/conv/m:0"] = np.ones(2, "f4")
        file["names"] = np.array([b"a", b"b"])
    found = read(path)
    assert list(found.state_dict) == ["model_weights/conv/conv/kernel:0"]
    assert len(found.parts["optimizer"]) == 2
    assert found.kind == "training checkpoint"
    assert found.extras["keras_version"] == "2.4.0"
    assert found.extras["backend"] == "tensorflow"
    assert [f.what for f in found.findings] == ["left out, links or no numbers: names"]


def test_nothing_is_followed_out_of_the_file_or_round_in_it(path, tmp_path):
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["secret"] = np.ones(4, "f4")
    (tmp_path / "secret.bin").write_bytes(bytes(16))
    with h5py.File(path, "w") as file:
        file["a/b"] = np.ones(2, "f4")
        file["a/loop"] = file["a"]  # a hard link to the group around it
        file["soft"] = h5py.SoftLink("/a")
        file["dangling"] = h5py.SoftLink("/nowhere")
        file["out"] = h5py.ExternalLink("other.h5", "/secret")
        file.create_dataset("raw", (4,), "f4", external=[("secret.bin", 0, 16)])
        layout = h5py.VirtualLayout((4,), "f4")
        layout[:] = h5py.VirtualSource("other.h5", "secret", (4,))
        file.create_virtual_dataset("virtual", layout)
        file["reference"] = np.array([file["a"].ref], h5py.ref_dtype)
        file["record"] = np.zeros(2, [("x", "f4"), ("y", "i4")])
    found = read(path)
    assert list(found.state_dict) == ["a/b"]
    (finding,) = found.findings
    assert finding.what.startswith("left out, links or no numbers: ")
    listed = hdf5_reader.listing(Source(path))["other"]
    assert sorted(listed) == sorted(
        ["soft", "dangling", "out", "raw", "virtual", "reference", "record"]
    )


def test_a_type_of_its_own_is_read_and_not_mapped(path):
    # bfloat16 as a float of the file's own, which HDF5 converts.
    kind = h5py.h5t.IEEE_F32LE.copy()
    kind.set_fields(15, 7, 8, 0, 7)
    kind.set_precision(16)
    kind.set_size(2)
    values = torch.tensor([1.0, -2.5, 3.0]).bfloat16()
    with h5py.File(path, "w") as file:
        space = h5py.h5s.create_simple((3,))
        made = h5py.h5d.create(file.id, b"a", kind, space)
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, values.view(torch.int16).numpy(), kind)
    found = read(path).state_dict
    assert found["a"].float().tolist() == values.float().tolist()
    assert found.entries["a"].memory is None


def test_what_the_file_does_not_hold_is_not_made(path):
    with h5py.File(path, "w") as file:
        file.create_dataset("a", (1 << 20, 1 << 20), "f4", chunks=(64, 64))
        file.create_dataset("b", (1 << 30,), "f4")
    found = read(path).state_dict
    assert found.entries["a"].shape == (1 << 20, 1 << 20)
    for name in ("a", "b"):
        with pytest.raises(MigrateError, match="of which the file holds 0"):
            found[name]


def test_without_h5py_it_says_so(path, monkeypatch):
    h5py.File(path, "w").close()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MigrateError, match="h5py is not installed") as caught:
        read(path)
    assert caught.value.fix == "pip install h5py"


def test_a_cut_file_says_what_the_library_says(path):
    with h5py.File(path, "w") as file:
        file["a"] = np.ones(1000, "f4")
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(MigrateError, match="truncated file"):
        read(path)


def test_if_the_process_is_gone_another_one_answers(path):
    with h5py.File(path, "w") as file:
        file.create_dataset("a", data=np.ones(4, "f4"), chunks=(2,))
    found = read(path).state_dict
    process = hdf5_reader._READER._process
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert found["a"].tolist() == [1.0] * 4
    assert hdf5_reader._READER._process.pid != process.pid


def test_an_interrupt_does_not_wait_for_an_answer(tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    (tmp_path / "endless.py").write_text("import os, time\nos.fork()\ntime.sleep(60)\n")
    monkeypatch.setattr(hdf5_reader, "_SCRIPT", tmp_path / "endless.py")
    reader = hdf5_reader._Reader()
    before = signal.signal(signal.SIGALRM, interrupt)
    began = time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(KeyboardInterrupt):
            reader.ask({})
    finally:
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - began < 10
    assert reader._process is None


def test_a_fork_asks_a_process_of_its_own(path):
    program = f"""
import os
from pathlib import Path
import h5py, numpy
with h5py.File({str(path)!r}, "w") as file:
    file.create_dataset("a", data=numpy.ones(4, "f4"), chunks=(2,))
from migrate_kit.checkpoints.formats import hdf5, hdf5_reader
from migrate_kit.checkpoints.formats.source import Source
state = hdf5.read(Source(Path({str(path)!r}))).state_dict
first = hdf5_reader._READER._process.pid
child = os.fork()
assert state["a"].tolist() == [1.0] * 4
second = hdf5_reader._READER._process.pid
if child == 0:
    hdf5_reader._READER.stop()
    os._exit(0 if second != first else 1)
assert second == first
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, check=True, text=True
    )
    assert (done.stdout, done.stderr) == ("0\n", "")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("while True: pass", "the library does not end"),
        ("os.kill(os.getpid(), 11)", "the library does not end"),
        ("bytes(5 << 30)", ""),
        ("raise ValueError('odd')", "odd"),
        ("out.write(b'half'); raise ValueError('odd')", "odd"),
    ],
    ids=["endless", "a crash", "memory", "an error", "half an answer"],
)
def test_a_library_that_fails_does_not_take_the_process_with_it(answer, said):
    program = textwrap.dedent(
        f"""
        import os
        from migrate_kit.checkpoints.formats import hdf5_process as p
        p._SECONDS = 1
        def answer(question, out):
            if question["bad"]:
                {answer}
            out.write(b"fine")
        p._answer = answer
        p.serve()
        """
    )
    asked = b'{"bad": true}\n{"bad": false}\n'
    done = subprocess.run(
        [sys.executable, "-c", program], input=asked, capture_output=True, check=True, timeout=60
    )
    first, _, rest = done.stdout.partition(b"\n")
    assert json.loads(first) == {"size": 0, "error": said}
    assert rest == b'{"size": 4, "error": ""}\nfine'


def test_chunks_of_another_rank_are_refused():
    # What kept HDF5 2.0 reading for ever: a dataset of one dimension, chunks of two.
    odd = SimpleNamespace(chunks=(4, 4), shape=(8,), dtype=np.dtype("f4"))
    odd.id = SimpleNamespace(get_storage_size=lambda: 64)
    with pytest.raises(hdf5_process._RefusedError, match="chunks of the shape"):
        hdf5_process._values(odd, None)
