"""The script to copy out writes what convert_weights writes."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import migrate_kit as mk
from migrate_kit.checkpoints.convert import convert_weights
from tests.checkpoints import darknet_files as files
from tests.checkpoints.one_thread import one_thread  # noqa: F401
from tests.checkpoints.ssd_graph import SSD

SCRIPT = mk.snippet("convert_weight").path


@pytest.fixture
def script(tmp_path, monkeypatch, capsys):
    """Run it in the test's folder; return what it prints, or why it stops."""

    def run(*arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["convert_weight.py", *map(str, arguments)])
        try:
            runpy.run_path(str(SCRIPT), run_name="__main__")
        except SystemExit as stop:
            return f"stopped: {stop.code}"
        return capsys.readouterr().out

    return run


def test_it_stands_alone(tmp_path):
    (tmp_path / "copied.py").write_text(SCRIPT.read_text())
    path = files.write_pair(tmp_path, files.FLIPPED.replace("flipped=1\n", ""))
    arguments = ["-original_name", path.name, "-cfg_file", "net.cfg", "-save_name", "a.pth"]
    # Isolated: neither this folder nor the package is on the path.
    command = [sys.executable, "-I", "-W", "error", "copied.py", "-model_name", "yolov3"]
    subprocess.run([*command, *arguments], cwd=tmp_path, check=True)
    check(tmp_path / "a.pth", convert_weights("yolov3", path, tmp_path / "b.pth"))


MISTAKES = {
    "missing.cfg": ("yolov3", "net.weights", "missing.cfg"),
    "missing.weights": ("yolov3", "missing.weights", "net.cfg"),
    "binary cfg": ("yolov3", "net.weights", "binary"),
    "empty cfg": ("yolov3", "net.weights", "empty"),
    "garbage npy": ("mtcnn", "binary", None),
    "plain npy": ("mtcnn", "plain.npy", None),
    "damaged npy": ("mtcnn", "cut.npy", None),
    "list": ("mobilenetv1", "list.pth", None),
    "epoch": ("mobilenetv1", "epoch.pth", None),
    "nothing": ("mobilenetv1", "nothing.pth", None),
    "garbage pth": ("mobilenetv1", "binary", None),
    "other network": ("mobilenetv1", "other.pth", None),
    "garbage pb": ("ssd_mobilenet_v1", "binary", None),
    "cut weights": ("yolov3", "cut.weights", "net.cfg"),
    "no weights": ("yolov3", "empty", "net.cfg"),
    "folder": ("mobilenetv1", ".", None),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_writes_nothing(mistake, tmp_path, script):
    weights = files.write_pair(tmp_path, files.FLIPPED.replace("flipped=1\n", ""))
    (tmp_path / "cut.weights").write_bytes(weights.read_bytes()[:-4])
    (tmp_path / "binary").write_bytes(bytes(range(128, 256)) * 3)
    (tmp_path / "empty").write_bytes(b"")
    np.save(tmp_path / "plain.npy", np.ones(3))
    np.save(tmp_path / "whole.npy", {"conv1": {"weights": np.ones(3)}})
    (tmp_path / "cut.npy").write_bytes((tmp_path / "whole.npy").read_bytes()[:-20])
    torch.save([1, 2], tmp_path / "list.pth")
    torch.save({"epoch": 3}, tmp_path / "epoch.pth")
    torch.save({"state_dict": {}}, tmp_path / "nothing.pth")
    torch.save({"w": torch.ones(3)}, tmp_path / "other.pth")
    before = sorted(tmp_path.iterdir())
    model, original, cfg = MISTAKES[mistake]
    more = [] if cfg is None else ["-cfg_file", cfg]
    said = script("-model_name", model, "-original_name", original, "-save_name", "new.pth", *more)
    assert said.startswith("stopped: ")
    assert len(said.splitlines()) == 1
    assert len(said) > len("stopped: ") + 10
    assert sorted(tmp_path.iterdir()) == before


def test_an_input_is_not_written_over(tmp_path, script):
    path = files.write_pair(tmp_path, files.FLIPPED.replace("flipped=1\n", ""))
    before = path.read_bytes()
    given = ["-model_name", "yolov3", "-original_name", path.name, "-cfg_file", "net.cfg"]
    for target in (path.name, "net.cfg", f"./{path.name}"):
        assert "is an input" in script(*given, "-save_name", target)
    assert path.read_bytes() == before


def check(path, conversion, names=None):
    """Compare a file with what the package converts; counters of batches may be left out."""
    state = torch.load(path, weights_only=True)
    wanted = names or conversion.state_dict
    wanted = {k: v for k, v in wanted.items() if not k.endswith("num_batches_tracked")}
    state = {k: v for k, v in state.items() if not k.endswith("num_batches_tracked")}
    assert state.keys() == wanted.keys()
    for name, tensor in state.items():
        assert torch.equal(tensor, wanted[name]), name


@pytest.mark.parametrize("name", ["yolo-fastest-1.1", "MobileNetV2-YOLO-Fastest-voc"])
def test_darknet(name, cases, tmp_path, script):
    folder = cases / "darknet"
    arguments = ("-original_path", folder, "-original_name", f"{name}.weights")
    cfg = folder / f"{name}.cfg"
    said = script(*arguments, "-model_name", "YOLOv3", "-save_name", "a.pth", "-cfg_file", cfg)
    found = convert_weights("yolov3", folder / f"{name}.weights", tmp_path / "b.pth")
    check(tmp_path / "a.pth", found)
    assert said.startswith("a.pth: ")
    assert (tmp_path / "a.pth").read_bytes()[:4] == b"\x80\x02\x8a\x0a"


def test_darknet_with_a_short_header_and_all_that_changes_channels(tmp_path, script):
    text = files.BRANCHES.replace("weights_type=per_channel\n", "").replace(
        "weights_type=per_feature\n", ""
    )
    path = files.write_pair(tmp_path, text, head=files.header(16, (0, 1, 0)))
    script(
        "-original_name", path.name, "-model_name", "yolov2", "-save_name", "a.pth",
        "-cfg_file", "net.cfg", "-save_model_path", "out",
    )  # fmt: skip
    check(tmp_path / "out/a.pth", convert_weights("yolov2", path, tmp_path / "b.pth"))


def test_a_cfg_of_another_network(tmp_path, script):
    path = files.write_pair(tmp_path, files.FLIPPED, values=np.zeros(3, "<f4"))
    said = script(
        "-original_name", path.name, "-model_name", "yolov3", "-save_name", "a.pth",
        "-cfg_file", "net.cfg",
    )  # fmt: skip
    assert "net.cfg needs 114 floats, net.weights has 3" in said
    assert not (tmp_path / "a.pth").exists()


@pytest.mark.parametrize("form", ["tropcomplique", "facenet_tf"])
def test_mtcnn(form, cases, tmp_path, script):
    folder = cases / f"mtcnn/{form}"
    names = ("det1", "det2", "det3") if form == "facenet_tf" else ("pnet", "rnet", "onet")
    saved = [f"{n}.pth" for n in ("pnet", "rnet", "onet")]
    script(
        "-original_path", folder, "-original_name", *(f"{n}.npy" for n in names),
        "-model_name", "mtcnn", "-save_name", *saved,
    )  # fmt: skip
    found = convert_weights("mtcnn", folder, tmp_path / "ours")
    for name in saved:
        part = found.network.get_submodule(name.removesuffix(".pth"))
        check(tmp_path / name, found, part.state_dict())


class Command:
    def __reduce__(self):
        return os.system, ("touch " + str(Path(__file__).with_name("run")),)


def test_code_in_a_pickle_is_not_run(tmp_path, script):
    array = np.empty((), dtype=object)
    array[()] = Command()
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    said = script("-original_name", "a.npy", "-model_name", "mtcnn", "-save_name", "a.pth")
    assert "asks for posix.system, which is no array" in said
    assert not Path(__file__).with_name("run").exists()


def test_ssd_mobilenet_v1(tmp_path, script):
    (tmp_path / "graph.pb").write_bytes(SSD(width=0.25, classes=7).data)
    script(
        "-original_name", "graph.pb", "-model_name", "ssd_mobilenet_v1",
        "-save_name", "a.pth",
    )  # fmt: skip
    found = convert_weights("ssd_mobilenet_v1", tmp_path / "graph.pb", tmp_path / "b.pth")
    check(tmp_path / "a.pth", found)


def test_a_graph_with_whole_batch_normalizations_is_refused(tmp_path, script):
    (tmp_path / "graph.pb").write_bytes(SSD("fused", width=0.125, classes=2).data)
    said = script(
        "-original_name", "graph.pb", "-model_name", "ssd_mobilenet_v1", "-save_name", "a.pth"
    )
    assert "only graphs whose batch normalizations are constants" in said
    assert not (tmp_path / "a.pth").exists()


def test_mobilenet_v1(cases, tmp_path, script):
    folder = cases / "checkpoints"
    name = "retinaface_mobilenetV1x0.25_model_best.pth.tar"
    script(
        "-original_path", folder, "-original_name", name, "-model_name", "mobilenetv1",
        "-save_name", "a.pth",
    )  # fmt: skip
    check(tmp_path / "a.pth", convert_weights("mobilenetv1", folder / name, tmp_path / "b.pth"))


def test_wrong_arguments(script):
    said = script("-original_name", "a", "-model_name", "yolov9", "-save_name", "b")
    assert "-model_name is one of yolov2, yolov3, mtcnn" in said
    said = script("-original_name", "a", "-model_name", "yolov2", "-save_name", "b")
    assert "need -cfg_file" in said
