"""What is written is what was given, or nothing is, with one clear error."""

import os
import resource
import subprocess
import sys

import numpy as np
import pytest
import torch

from migrate_kit import files as package_files
from migrate_kit.checkpoints.load import load_checkpoint
from migrate_kit.checkpoints.state import StateDict
from migrate_kit.checkpoints.write import FORMATS, SUFFIXES, format_of, write_state_dict
from migrate_kit.errors import MigrateError

TORCH = ("torch", "torch-legacy")


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("turned", [False, True])
def test_pieces_of_one_memory_keep_their_shape_and_dtype(tmp_path, form, turned):
    big = torch.arange(10.0)
    state = {
        "piece": big[:4],
        "all": big,
        "bits": big[:5].view(torch.int32),
        "square": big[:4].view(2, 2),
        "other": big[4:8],
    }
    state = dict(reversed(state.items())) if turned else state
    found = load_checkpoint(write_state_dict(state, tmp_path / "v", form)).state_dict
    assert {k: found[k].dtype for k in state} == {k: v.dtype for k, v in state.items()}
    assert all(torch.equal(found[k], v) for k, v in state.items())


@pytest.mark.parametrize("form", TORCH)
def test_tied_weights_are_written_once(tmp_path, form):
    weight = torch.ones(1000)
    out = write_state_dict({"a": weight, "b": weight}, tmp_path / "v.pth", form)
    assert 4000 < out.stat().st_size < 6000
    read = torch.load(out, weights_only=True)
    assert read["a"].data_ptr() == read["b"].data_ptr()
    entries = load_checkpoint(out).state_dict.entries
    assert entries["a"].memory == entries["b"].memory


@pytest.mark.parametrize("new", [True, False])
def test_a_conjugate_and_a_negative_are_read_as_torch_reads_them(tmp_path, new):
    c = torch.tensor([1 + 2j, 3 - 4j])
    saved = {
        "c": c.conj(),
        "neg": torch._neg_view(torch.ones(2)),
        "imag": c.clone().conj().imag,
        "both": torch._neg_view(c.conj()),
        "plain": c,
    }
    torch.save(saved, tmp_path / "a.pth", _use_new_zipfile_serialization=new)
    wanted = torch.load(tmp_path / "a.pth", weights_only=True)
    found = load_checkpoint(tmp_path / "a.pth").state_dict
    assert all(torch.equal(found[k], v) for k, v in wanted.items())
    assert found["neg"].tolist() == [-1, -1]
    again = write_state_dict(found, tmp_path / "b.pth")
    read = load_checkpoint(again).state_dict
    assert all(torch.equal(read[k], v) for k, v in wanted.items())


@pytest.mark.parametrize("form", FORMATS)
def test_bits_are_written_as_values(tmp_path, form):
    out = write_state_dict({"n": torch._neg_view(torch.ones(2))}, tmp_path / "a", form)
    assert load_checkpoint(out).state_dict["n"].tolist() == [-1, -1]
    if form in TORCH:
        assert not torch.load(out, weights_only=True)["n"].is_neg()


@pytest.mark.parametrize(("suffix", "form"), [*SUFFIXES.items(), (".PTH", "torch")])
def test_the_suffix_says_the_format(tmp_path, suffix, form):
    out = write_state_dict({"w": torch.ones(2)}, tmp_path / f"a{suffix}")
    assert format_of(out) == form
    kinds = {"torch": "torch zip", "safetensors": "safetensors", "mindspore": "MindSpore"}
    assert load_checkpoint(out).format.startswith(kinds[form])
    if form == "torch":
        assert torch.load(out, weights_only=True)["w"].tolist() == [1, 1]


def test_a_suffix_that_says_nothing_is_refused(tmp_path):
    with pytest.raises(MigrateError, match="says no format") as caught:
        write_state_dict({"w": torch.ones(2)}, tmp_path / "a.dat")
    assert "format=" in caught.value.fix
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("form", ["safetensors", "mindspore"])
def test_a_name_that_is_no_text_is_refused(tmp_path, form):
    with pytest.raises(MigrateError, match="no Unicode text"):
        write_state_dict({"\ud800x": torch.ones(1)}, tmp_path / "a", form)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("form", FORMATS)
def test_two_keys_of_one_name_are_refused(tmp_path, form):
    with pytest.raises(MigrateError, match="two tensors would have the name 1"):
        write_state_dict({1: torch.ones(1), "1": torch.zeros(1)}, tmp_path / "a", form)
    with pytest.raises(MigrateError, match="two tensors would have the name 1"):
        StateDict.of({1: torch.ones(1), "1": torch.zeros(1)})


def test_two_keys_of_one_name_in_a_file_are_refused(tmp_path):
    torch.save({1: torch.ones(1), "1": torch.zeros(1)}, tmp_path / "a.pth")
    with pytest.raises(MigrateError, match="two tensors would have the name 1"):
        load_checkpoint(tmp_path / "a.pth")


@pytest.mark.parametrize("new", [True, False])
def test_names_are_those_of_the_file(tmp_path, new):
    names = ["a\nb", "a\0b", "\u202eabc", "a\ufffdb", "\x1b[31m"]
    saved = {name: torch.tensor(float(n)) for n, name in enumerate(names)}
    torch.save(saved, tmp_path / "a.pth", _use_new_zipfile_serialization=new)
    found = load_checkpoint(tmp_path / "a.pth")
    assert {k: v.item() for k, v in found.state_dict.items()} == {
        k: v.item() for k, v in saved.items()
    }
    assert "\x1b" not in repr(found) + found._repr_html_()
    module = torch.nn.Module()
    module.register_buffer("a\nb", torch.ones(2))
    torch.save(module, tmp_path / "m.pth")
    assert list(load_checkpoint(tmp_path / "m.pth").state_dict) == ["a\nb"]


def nested():
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.strided)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(2, device="meta"),
        torch.nn.UninitializedParameter,
        nested,
    ],
)
@pytest.mark.filterwarnings("ignore:.*nested tensors:UserWarning")
def test_a_tensor_without_values_or_shape_is_refused(tmp_path, form, make):
    with pytest.raises(MigrateError):
        write_state_dict({"w": torch.ones(2), "x": make()}, tmp_path / "a", form)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("form", ["safetensors", "torch-legacy", "mindspore"])
@pytest.mark.parametrize("make", [lambda x: x.to_sparse(), lambda x: x.to_mkldnn()])
def test_other_layouts_are_refused(tmp_path, form, make):
    with pytest.raises(MigrateError):
        write_state_dict({"x": make(torch.eye(3))}, tmp_path / "a", form)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "dtype",
    [torch.float8_e4m3fn, torch.float8_e5m2, torch.uint16, torch.uint64, torch.complex64],
)
def test_the_old_stream_holds_what_old_torch_reads(tmp_path, dtype):
    with pytest.raises(MigrateError, match="torch-legacy has no"):
        write_state_dict({"x": torch.ones(2).to(dtype)}, tmp_path / "a", "torch-legacy")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("wrong", [None, 5, [1], torch.nn.Linear(1, 1), "x"])
def test_what_is_no_state_dict_is_refused(tmp_path, wrong):
    with pytest.raises(MigrateError, match="a mapping of tensors is needed"):
        write_state_dict(wrong, tmp_path / "a.pth")


@pytest.mark.parametrize("wrong", [None, 5, b"w"])
def test_what_is_no_path_is_refused(wrong):
    with pytest.raises(MigrateError, match="a path is needed"):
        load_checkpoint(wrong)
    with pytest.raises(MigrateError, match="a path is needed"):
        write_state_dict({"w": torch.ones(1)}, wrong, "torch")


@pytest.mark.parametrize("wrong", ["a" * 5000, "a\0b"])
def test_an_impossible_path_is_refused(wrong):
    with pytest.raises(MigrateError, match="cannot be read"):
        load_checkpoint(wrong)


@pytest.mark.parametrize("form", FORMATS)
def test_a_disk_that_is_full_leaves_the_old_file(tmp_path, form):
    out = tmp_path / "a"
    write_state_dict({"w": torch.ones(2)}, out, form)
    before = out.read_bytes()
    code = (
        "import resource, signal, torch\n"
        "from migrate_kit.checkpoints.write import write_state_dict\n"
        "from migrate_kit.errors import MigrateError\n"
        "state = {'w': torch.ones(1_000_000)}\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n"
        "try:\n"
        f"    write_state_dict(state, {str(out)!r}, {form!r})\n"
        "except MigrateError:\n"
        "    raise SystemExit(7)\n"
    )
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 7, done.stderr.decode()
    assert out.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_the_file_behind_a_link_is_written(tmp_path):
    (tmp_path / "far").mkdir()
    real, link = tmp_path / "far/real.pt", tmp_path / "link.pt"
    write_state_dict({"w": torch.zeros(1)}, real)
    link.symlink_to("far/real.pt")
    write_state_dict({"w": torch.ones(1)}, link)
    assert link.is_symlink()
    assert load_checkpoint(real).state_dict["w"].item() == 1
    (tmp_path / "new.pt").symlink_to("far/new.pt")
    package_files.write_text(tmp_path / "new.pt", "text")
    assert (tmp_path / "far/new.pt").read_text() == "text"
    assert (tmp_path / "new.pt").is_symlink()


@pytest.mark.parametrize("behind", [False, True])
def test_a_pipe_is_neither_replaced_nor_waited_for(tmp_path, behind):
    pipe = tmp_path / "pipe.pth"
    os.mkfifo(pipe)
    if behind:
        (tmp_path / "link.pth").symlink_to(pipe)
    given = tmp_path / "link.pth" if behind else pipe
    with pytest.raises(MigrateError, match="a named pipe"):
        write_state_dict({"w": torch.ones(1)}, given)
    with pytest.raises(MigrateError, match="a named pipe"):
        load_checkpoint(given)
    assert pipe.is_fifo()


def test_a_pipe_beside_weights_is_not_waited_for(tmp_path):
    from migrate_kit.checkpoints.formats.darknet_cfg import read_cfg

    os.mkfifo(tmp_path / "a.cfg")
    with pytest.raises(MigrateError, match="a named pipe"):
        read_cfg(tmp_path / "a.cfg")


def test_a_file_cut_after_it_was_listed_is_refused(tmp_path):
    path = tmp_path / "f.pth"
    torch.save({"a": torch.ones(300_000)}, path)
    found = load_checkpoint(path)
    with path.open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(MigrateError, match="written over"):
        found.state_dict["a"]


def test_a_file_written_over_after_it_was_listed_is_refused(tmp_path):
    path = tmp_path / "f.safetensors"
    write_state_dict({"a": torch.ones(3)}, path)
    found = load_checkpoint(path)
    raw = path.read_bytes()
    path.write_bytes(raw[:-4] + np.float32(9).tobytes())
    os.utime(path, ns=(0, 0))
    with pytest.raises(MigrateError, match="written over"):
        found.state_dict["a"]


def test_a_file_replaced_by_a_rename_stays_readable(tmp_path):
    path = tmp_path / "f.safetensors"
    write_state_dict({"a": torch.ones(3)}, path)
    found = load_checkpoint(path)
    write_state_dict({"a": torch.zeros(3)}, path)
    assert found.state_dict["a"].tolist() == [1, 1, 1]
    path.unlink()
    assert found.state_dict["a"].tolist() == [1, 1, 1]
