"""Front-end files are copied whole, once, and what was there survives a failure."""

import json
import shutil
import sys
from pathlib import Path

import pytest

import migrate_kit as mk
from migrate_kit import front_end
from migrate_kit.errors import MigrateError

SOURCE = Path(sys.prefix) / "share" / "jupyter" / "labextensions"


def actions(result):
    return {step.extension: step.action for step in result.steps}


def test_both_extensions_are_copied_whole(tmp_path):
    result = mk.setup_front_end(tmp_path)
    assert set(actions(result).values()) == {"copied"}
    assert result.ok
    assert "reload" in result.findings[-1].fix
    for name in front_end.EXTENSIONS:
        copy = tmp_path / "labextensions" / name
        assert {p.relative_to(copy) for p in copy.rglob("*")} == {
            p.relative_to(SOURCE / name) for p in (SOURCE / name).rglob("*")
        }
    assert not list(tmp_path.rglob(".*"))


def test_a_second_call_changes_nothing(tmp_path):
    mk.setup_front_end(tmp_path)
    again = mk.setup_front_end(tmp_path)
    assert set(actions(again).values()) == {"already there"}
    assert again.findings == []


def test_another_version_is_replaced_and_said(tmp_path):
    old = tmp_path / "labextensions" / "anywidget"
    old.mkdir(parents=True)
    (old / "package.json").write_text(json.dumps({"version": "0.9.21"}))
    (old / "left_over.js").write_text("")
    result = mk.setup_front_end(tmp_path)
    assert actions(result)["anywidget"] == "copied"
    assert any("0.9.21 was replaced" in f.what for f in result.findings)
    assert not (old / "left_over.js").exists()


def test_a_link_is_left_alone(tmp_path):
    (tmp_path / "labextensions").mkdir()
    (tmp_path / "mine").mkdir()
    (tmp_path / "labextensions" / "anywidget").symlink_to(tmp_path / "mine")
    result = mk.setup_front_end(tmp_path)
    assert actions(result)["anywidget"] == "kept"
    assert not list((tmp_path / "mine").iterdir())


def test_an_interrupted_copy_leaves_the_old_files(tmp_path, monkeypatch):
    old = tmp_path / "labextensions" / "anywidget"
    old.mkdir(parents=True)
    (old / "package.json").write_text(json.dumps({"version": "0.9.21"}))
    rename = Path.rename

    def fail(self, target):
        if "partial" in self.name:
            raise OSError(28, "No space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(MigrateError, match="No space left"):
        mk.setup_front_end(tmp_path)
    assert json.loads((old / "package.json").read_text())["version"] == "0.9.21"
    assert [p.name for p in (tmp_path / "labextensions").iterdir()] == ["anywidget"]


def test_a_full_disk_leaves_nothing_half_copied(tmp_path, monkeypatch):
    def full(source, target):
        Path(target).mkdir()
        raise shutil.Error([(source, target, "No space left on device")])

    monkeypatch.setattr(shutil, "copytree", full)
    with pytest.raises(MigrateError, match="No space left"):
        mk.setup_front_end(tmp_path)
    assert list((tmp_path / "labextensions").iterdir()) == []


def test_an_environment_without_the_files(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "empty"))
    result = mk.setup_front_end(tmp_path)
    assert not result.ok
    assert {f.fix for f in result.findings} == {"install anywidget", "install ipywidgets"}
    assert set(result.to_frame()["action"]) == {"missing"}
    assert "missing" in result._repr_html_()
    assert repr(result).startswith("FrontEnd(NOT OK")
    json.dumps(result.to_dict())


def test_jupyters_own_folder_is_the_default(tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path))
    mk.setup_front_end()
    assert (tmp_path / "labextensions" / "anywidget" / "package.json").exists()
