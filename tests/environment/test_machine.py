"""What this machine can run is told without importing any framework."""

import subprocess
import sys

from migrate_kit.environment import machine as room


def parts(monkeypatch, versions, nodes):
    monkeypatch.setattr(room, "_version", versions.get)
    monkeypatch.setattr(room, "_glob", lambda p: [n for n in nodes if n.match(p)])
    return {p.name: p for p in room.machine().parts}


def test_an_npu_needs_its_package_and_its_device(monkeypatch, tmp_path):
    davinci = tmp_path.__class__("/dev/davinci0")
    both = {"torch": "2.7.1", "torch-npu": "2.7.1"}
    assert parts(monkeypatch, both, [davinci])["Ascend NPU"].state == "ready"
    for versions, nodes, why in (
        (both, [], "no device /dev/davinci[0-9]*"),
        ({"torch": "2"}, [davinci], "torch-npu is not installed"),
    ):
        part = parts(monkeypatch, versions, nodes)["Ascend NPU"]
        assert part.state == "absent"
        assert part.why == why


def test_a_missing_framework_says_how_to_get_it(monkeypatch):
    part = parts(monkeypatch, {}, [])["ONNX Runtime"]
    assert (part.state, part.why) == ("not installed", "pip install onnxruntime")


def test_nothing_is_imported():
    code = (
        "import sys; from migrate_kit.environment.machine import machine; print(repr(machine()));"
        "sys.exit(any(m in sys.modules for m in ('torch', 'onnxruntime', 'mindspore')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
