"""`import migrate_kit` is cheap and brings in no framework."""

import json
import statistics
import subprocess
import sys

import migrate_kit as mk

HEAVY = ["torch", "numpy", "pandas", "mindspore", "onnx", "onnxruntime", "IPython", "anywidget"]
PROGRAM = """
import json, sys, time
began = time.perf_counter()
import migrate_kit
spent = time.perf_counter() - began
print(json.dumps([spent, [name for name in %r if name in sys.modules]]))
"""


def fresh(program):
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def test_takes_less_than_three_tenths_of_a_second():
    spent, loaded = zip(*(fresh(PROGRAM % HEAVY) for _ in range(5)), strict=True)
    assert loaded == ([],) * 5
    assert statistics.median(spent) < 0.3


def test_opening_a_project_loads_no_framework_either():
    program = PROGRAM.replace("\nspent", "; migrate_kit.open_project('sample')\nspent")
    assert fresh(program % ["torch", "pandas", "mindspore"])[1] == []


def test_every_public_name_is_there_and_listed():
    assert set(mk.__all__) == set(dir(mk))
    assert set(mk._HOMES) | {"__version__", "check"} == set(mk.__all__)
    for name in mk.__all__:
        assert getattr(mk, name) is not None


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(mk, "no_such_name")
