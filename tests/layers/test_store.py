"""Traces on disk: whole or not there, refused when damaged, readable by safetensors itself."""

from __future__ import annotations

import errno
import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors import safe_open
from torch import nn

import migrate_kit as mk
from migrate_kit.layers import writer

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


X = torch.linspace(-1, 1, 24).reshape(3, 8)


def leftovers(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_a_stored_trace_is_the_run(model: nn.Module, tmp_path: Path) -> None:
    trace = mk.capture(model, X, store=tmp_path / "run")
    back = mk.Trace.load(tmp_path / "run")
    assert [r.key for r in back.records] == [r.key for r in trace.records]
    assert torch.equal(back.tensor("2"), model(X))
    assert back.meta["runner"] == "torch"
    with safe_open(tmp_path / "run" / "tensors-001.safetensors", "pt") as f:
        assert torch.equal(f.get_tensor("forward/2"), model(X))
    assert mk.compare(tmp_path / "run", mk.DumpRunner(tmp_path / "run"), noise=False).ok
    assert leftovers(tmp_path) == ["run"]


def test_many_entries_go_into_several_files(
    model: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_RESERVE", 256)
    mk.capture(model, X, store=tmp_path / "run")
    assert len(list((tmp_path / "run").glob("tensors-*"))) > 1
    assert torch.equal(mk.Trace.load(tmp_path / "run").tensor("output"), model(X))


@pytest.mark.parametrize("fallocate", [True, False])
def test_a_tensor_larger_than_a_step_of_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, fallocate: bool
) -> None:
    def refuses(*_: Any) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(writer, "_STEP", 1 << 12)
    if not fallocate:
        monkeypatch.setattr(os, "posix_fallocate", refuses)
    x = torch.randn(7, 2017)
    mk.capture(nn.Identity(), x, store=tmp_path / "run")
    assert torch.equal(mk.Trace.load(tmp_path / "run").tensor("(network)"), x)
    file = next((tmp_path / "run").glob("tensors-*"))
    # What room was left over is given back: one header and one copy of the values.
    assert file.stat().st_size == 8 + writer._RESERVE + x.numel() * 4


def test_a_write_may_take_part_of_what_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: nn.Module
) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:1000]))
    mk.capture(model, X, store=tmp_path / "run")
    monkeypatch.undo()
    assert torch.equal(mk.Trace.load(tmp_path / "run").tensor("2"), model(X))


def test_a_temporary_trace_goes_with_its_object(model: nn.Module) -> None:
    trace = mk.capture(model, X)
    path, kept = trace.path, trace.tensor("2")
    assert path.exists()
    del trace
    assert not path.exists()
    assert torch.equal(kept, model(X))  # a tensor in use stays readable


@pytest.mark.parametrize("call", ["write", "pwrite"])
def test_a_full_disk_leaves_the_older_trace(
    model: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    mk.capture(model, X, store=tmp_path / "run")
    before = (tmp_path / "run" / "index.json").read_text()

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(mk.MigrateError, match="the disk is full"):
        mk.capture(model, X + 1, store=tmp_path / "run")
    monkeypatch.undo()
    assert (tmp_path / "run" / "index.json").read_text() == before
    assert leftovers(tmp_path) == ["run"]
    assert torch.equal(mk.Trace.load(tmp_path / "run").tensor("2"), model(X))


def test_a_network_that_raises_leaves_the_older_trace(tmp_path: Path, model: nn.Module) -> None:
    mk.capture(model, X, store=tmp_path / "run")
    with pytest.raises(mk.MigrateError, match="layer 0"):
        mk.capture(model, X[:, :5], store=tmp_path / "run")
    assert leftovers(tmp_path) == ["run"]
    assert torch.equal(mk.Trace.load(tmp_path / "run").tensor("2"), model(X))


def test_a_newer_trace_replaces_the_older_one_whole(tmp_path: Path, model: nn.Module) -> None:
    mk.capture(model, X, store=tmp_path / "run")
    mk.capture(model, X * 2, store=tmp_path / "run", tensors=False)
    assert leftovers(tmp_path / "run") == ["index.json", "sketches.safetensors"]
    assert leftovers(tmp_path) == ["run"]


def test_something_else_is_never_overwritten(tmp_path: Path, model: nn.Module) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("keep")
    for target in ("notes", "notes/mine.txt"):
        with pytest.raises(mk.MigrateError, match="not a trace"):
            mk.capture(model, X, store=tmp_path / target)
    assert (tmp_path / "notes" / "mine.txt").read_text() == "keep"


# --- damaged traces -------------------------------------------------------------------------------


@pytest.fixture
def run(model: nn.Module, tmp_path: Path) -> Path:
    mk.capture(model, X, store=tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def sketched(model: nn.Module, tmp_path: Path) -> Path:
    mk.capture(model, X, store=tmp_path / "sketched", tensors=False)
    return tmp_path / "sketched"


def test_a_sketch_is_the_same_kept_or_from_values(run: Path, sketched: Path) -> None:
    a, b = mk.Trace.load(run), mk.Trace.load(sketched)
    assert all(
        torch.equal(a.sketch(r), b.sketch(s)) for r, s in zip(a.records, b.records, strict=True)
    )
    assert mk.compare(run, sketched, noise=False).ok
    assert {r.source for r in mk.compare(run, sketched, noise=False).rows} == {"sketch"}


def edit(run: Path, **changes: Any) -> None:
    index = json.loads((run / "index.json").read_text())
    (run / "index.json").write_text(json.dumps(index | changes))


@pytest.mark.parametrize("name", ["tensors-001.safetensors", "sketches.safetensors", "index.json"])
@pytest.mark.parametrize("keep", [0.0, 0.3, 0.99])
def test_a_truncated_file_is_refused(run: Path, sketched: Path, name: str, keep: float) -> None:
    run = sketched if "sketches" in name else run
    file = run / name
    data = file.read_bytes()
    file.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(mk.MigrateError, match="damaged or truncated"):
        mk.Trace.load(run)


@pytest.mark.parametrize("name", ["tensors-001.safetensors", "sketches.safetensors"])
def test_a_missing_file_is_refused(run: Path, sketched: Path, name: str) -> None:
    run = sketched if "sketches" in name else run
    (run / name).unlink()
    with pytest.raises(mk.MigrateError, match="damaged"):
        mk.Trace.load(run)


def test_a_newer_version_says_so(run: Path) -> None:
    edit(run, version=2)
    with pytest.raises(mk.MigrateError, match="version 2, this migrate-kit reads up to 1"):
        mk.Trace.load(run)


@pytest.mark.parametrize(
    "changes",
    [
        {"records": None},
        {"records": [1]},
        {"records": [{}]},
        {"files": ["../../secret.safetensors"]},
        {"files": [7]},
        {"files": "x"},
        {"version": "1"},
        {"format": "other"},
    ],
)
def test_a_strange_index_is_refused(run: Path, changes: dict[str, Any]) -> None:
    edit(run, **changes)
    with pytest.raises(mk.MigrateError):
        mk.Trace.load(run)


def test_no_trace_there(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(mk.MigrateError, match="no trace"):
            mk.Trace.load(path)


def test_an_empty_trace_cannot_be_compared(run: Path) -> None:
    shutil.copytree(run, run.with_name("empty"))
    edit(run.with_name("empty"), records=[])
    with pytest.raises(mk.MigrateError, match="empty"):
        mk.compare(run, run.with_name("empty"))


def test_hostile_names_are_kept_and_escaped(tmp_path: Path) -> None:
    class Hostile(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self._modules[name](x)

    model = Hostile()
    name = '<script>alert("1")</script>\n\'&'
    model.add_module(name, nn.ReLU())
    a = mk.capture(model, X, store=tmp_path / "a")
    b = mk.capture(model, -X, store=tmp_path / "b")
    assert a.find("forward", name) is not None
    assert torch.equal(mk.Trace.load(tmp_path / "a").tensor(name), X.relu())
    diff = mk.compare(tmp_path / "a", b)
    for page in (diff._repr_html_(), a._repr_html_()):
        assert "<script" not in page
        assert "&lt;script&gt;" in page
