"""Which project is opened, and what it keeps."""

import json
import os
import re
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

import migrate_kit as mk
from migrate_kit.errors import MigrateError
from migrate_kit.project import RESULTS
from migrate_kit.results import Finding, Result
from migrate_kit.targets import find_target


class Found(Result):
    kind = "found"

    def __init__(self, **more):
        self.findings = [Finding("error", "too far", "conv1", "look <here>")]
        self.more = more

    def to_dict(self):
        return super().to_dict() | self.more

    def __repr__(self):
        return "Found(1 error)"


def test_the_file_is_found_in_the_folders_above(write, folder, monkeypatch):
    write(more='[target]\nname = "mlu270"')
    below = folder / "notebooks" / "deep"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert mk.open_project().folder == folder


def test_the_search_stops_at_the_home_folder(write, folder, monkeypatch):
    write()
    home = folder / "home"
    (home / "x").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home / "x")
    assert mk.open_project().is_sample
    (home / "migration.toml").write_text((folder / "migration.toml").read_text())
    assert mk.open_project().folder == home


def test_the_notebooks_folder_is_searched_too(write, folder, tmp_path_factory, monkeypatch):
    write()
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert mk.open_project().is_sample
    monkeypatch.setenv("JPY_SESSION_NAME", str(folder / "a.ipynb"))
    assert mk.open_project().folder == folder


def test_the_variable_and_the_argument(write, folder, monkeypatch, tmp_path_factory):
    write()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MIGRATE_KIT_PROJECT", "sample")
    assert mk.open_project().is_sample
    assert not mk.open_project(folder).is_sample
    assert not mk.open_project("migration.toml").is_sample
    monkeypatch.setenv("MIGRATE_KIT_PROJECT", str(folder))
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert mk.open_project().folder == folder


def test_a_path_without_a_project(tmp_path):
    for path in (tmp_path, tmp_path / "x.toml", str(tmp_path / "nowhere")):
        with pytest.raises(MigrateError, match=r"no migration\.toml there"):
            mk.open_project(path)


def test_the_target_can_be_given(write):
    assert mk.open_project(write(), target="mlu370").target == "mlu370"
    assert mk.open_project("sample", target="Ascend310P3").target == "ascend310p"
    with pytest.raises(MigrateError, match="mlu370"):
        mk.open_project("sample", target="mlu730")


@pytest.mark.skipif(not hasattr(os, "chown") or os.geteuid() != 0, reason="only root may chown")
def test_a_strangers_file_in_a_folder_above_is_not_opened(write, folder, monkeypatch):
    file = write()
    os.chown(file, 12345, 12345)
    below = folder / "mine"
    below.mkdir()
    monkeypatch.chdir(below)
    with pytest.raises(MigrateError, match="another user"):
        mk.open_project()
    assert mk.open_project(file).folder == folder
    # A container mounts the repository with its owner's number: all of it is one owner's.
    os.chown(below, 12345, 12345)
    assert mk.open_project().folder == folder


def test_results_are_kept_and_read_back(write):
    file = write()
    project = mk.open_project(file)
    assert project.results == {}
    assert Found(value=[1, 2.5, None]).save(project) == "found"
    assert project.keep(Found(), "again") == "again"
    on_disk = json.loads((file.parent / RESULTS / "found.json").read_text())
    assert on_disk == project.results["found"]
    assert on_disk["findings"][0]["fix"] == "look <here>"
    assert mk.open_project(file).results == project.results
    assert sorted(p.name for p in (file.parent / RESULTS).iterdir()) == ["again.json", "found.json"]


def test_a_real_result_is_kept_under_its_kind(write):
    project = mk.open_project(write())
    trace = mk.capture(project.model(), *project.inputs())
    name = mk.compare(trace, trace).save(project)
    assert name == "layer_diff"
    assert mk.open_project(project.folder).results[name]["ok"] is True


def test_the_sample_keeps_results_where_one_works(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Found().save(mk.open_project("sample"))
    assert (tmp_path / RESULTS / "found.json").exists()


def test_a_test_run_keeps_them_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Found().save(mk.open_project("sample"))
    monkeypatch.setenv("MIGRATE_KIT_RESULTS", str(tmp_path / "other"))
    project = mk.open_project("sample")
    assert project.results == {}
    Found().save(project, "second")
    assert [p.name for p in (tmp_path / "other").iterdir()] == ["second.json"]


@pytest.mark.parametrize("name", ["../up", "a/b", ".hidden", "a" * 101, "x\n", "名"])
def test_a_name_that_is_no_file_name(write, name):
    project = mk.open_project(write())
    with pytest.raises(MigrateError, match="cannot be named"):
        project.keep(Found(), name)
    assert not (project.folder / RESULTS).exists()


@pytest.mark.parametrize("value", [float("nan"), object(), {1, 2}])
def test_a_result_that_is_not_json_leaves_the_old_one(write, value):
    project = mk.open_project(write())
    Found(value=1).save(project)
    with pytest.raises(MigrateError, match=r"Found\.to_dict"):
        Found(value=value).save(project)
    assert mk.open_project(project.folder).results["found"]["value"] == 1


def test_a_full_disk_leaves_the_old_one(write, monkeypatch):
    project = mk.open_project(write())
    Found(value=1).save(project)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(MigrateError, match="No space left"):
        Found(value=2).save(project)
    assert project.results["found"]["value"] == 1
    again = mk.open_project(project.folder)
    assert again.results["found"]["value"] == 1
    assert again.findings == []
    assert [p.name for p in (project.folder / RESULTS).iterdir()] == ["found.json"]


def test_a_result_that_cannot_be_read_is_said_and_left_out(write):
    project = mk.open_project(write())
    Found().save(project)
    for name, text in {"cut": '{"a": ', "list": "[]", "deep": "[" * 100_000}.items():
        (project.folder / RESULTS / f"{name}.json").write_text(text)
    (project.folder / RESULTS / "bytes.json").write_bytes(b"\xff")
    again = mk.open_project(project.folder)
    assert set(again.results) == {"found"}
    assert {f.where for f in again.findings} == {"cut.json", "list.json", "deep.json", "bytes.json"}
    assert "cut.json" in again._repr_html_()


def test_what_is_shown_is_escaped_and_does_not_change_with_results(write):
    project = mk.open_project(
        write('name = "<b>"\n[model]\nbuilder="net:build"\n[[inputs]]\nshape=[1]')
    )
    html = project._repr_html_()
    assert "<b>" not in html
    assert "&lt;b&gt;" in html
    Found().save(project)
    assert mk.open_project(project.folder)._repr_html_() == html
    assert sys.prefix not in html


def test_the_likeliest_classes(write):
    project = mk.open_project(write(more='[labels]\nlist = ["a", "b"]'))
    assert [label for label, _ in project.top([[1.0, 3.0], [9.0, 0.0]], k=9)] == ["b", "a"]
    assert sum(p for _, p in project.top([1.0, 3.0])) == pytest.approx(1)


def test_an_input_that_cannot_be_made_names_the_file_and_its_key(write, folder):
    (folder / "text.png").write_text("cat")
    (folder / "text.npy").write_text("cat")
    Image.new("RGB", (6, 5)).save(folder / "small.png")
    wrong = {
        'image = "text.png"': ["image cannot be read", f"image {folder / 'text.png'}"],
        'npy = "text.npy"': ["array cannot be read", f"npy {folder / 'text.npy'}"],
        'image = "small.png"\ncrop = 8': ["does not fit 5 by 6", "crop of small.png"],
        "shape = [1000000, 1000000]": ["GiB", "shape [1000000, 1000000]"],
        'shape = [1]\ndtype = "uint8"\nhigh = 300': ["does not fit uint8", "low and high"],
    }
    for text, (what, key) in wrong.items():
        file = write(inputs=f"shape = [1]\n[[inputs]]\n{text}")
        with pytest.raises(MigrateError) as caught:
            mk.open_project(file).inputs()
        assert what in caught.value.what
        assert caught.value.where.startswith(f"{file}, [[inputs]] number 2, ")
        assert key in caught.value.where


def test_an_input_that_is_missing_names_the_file_and_its_key(write):
    file = write(inputs='image = "nowhere.png"')
    with pytest.raises(MigrateError, match=r"image names no file: 'nowhere\.png'") as caught:
        mk.open_project(file)
    assert caught.value.where == f"{file}, [[inputs]] number 1"


def test_what_is_said_of_weights_that_no_file_gives(write):
    text = 'builder = "torch.nn.Linear"\nkwargs = {in_features = 3, out_features = 2}'
    project = mk.open_project(write(model=text))
    said = dict(project.describe())["weights"]
    seed = re.search(r"random, seed (\d+)", said)
    torch.manual_seed(int(seed[1]))
    assert torch.equal(torch.nn.Linear(3, 2).weight, project.model().weight)
    assert mk.open_project("sample").source == "the embedded sample"


def test_a_target_answers_to_the_name_of_its_chip():
    for name in ("ascend310p", " Ascend310P ", "Ascend310P3"):
        assert find_target(name, "here").name == "ascend310p"
    assert find_target("Ascend950PR_9579", "here").name == "ascend950"
    for wrong in ("ascend311", "", "*", None, 910):
        with pytest.raises(MigrateError, match="no target") as caught:
            find_target(wrong, "here")
        assert "ascend310p, ascend910a" in caught.value.fix


def test_a_store_is_a_folder_among_the_results(tmp_path, monkeypatch):
    monkeypatch.setenv("MIGRATE_KIT_RESULTS", str(tmp_path))
    project = mk.open_project("sample")
    assert project.store("rehearsal") == tmp_path / "rehearsal"
    for wrong in ("../x", "", "a/b", ".."):
        with pytest.raises(MigrateError, match="cannot be named"):
            project.store(wrong)
