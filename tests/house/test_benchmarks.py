"""The benchmarks can be started, and what they measure lands in the one table."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
NAMES = sorted(p.stem for p in FOLDER.glob("bench_*.py"))
# Their modules have short names; in a process of their own they meet no others.
ASK = """
import importlib, inspect, json, sys
found = {}
for name in sys.argv[1:]:
    signature = inspect.signature(importlib.import_module(name).main)
    found[name] = [list(signature.parameters), signature.return_annotation]
print(json.dumps(found))
"""
RUN = """
import sys
from pathlib import Path
import figure, run

bench = type(sys)("bench_one")
bench.main = lambda: [figure.Figure("a | b", 2.0, "s", *figure.at_most(1, 2.0)[:1], passed=False)]
sys.modules["bench_one"] = bench
figures = run._figures("one") + run._figures("nowhere")
run.write(Path(sys.argv[1]), figure.markdown_table(figures))
"""


def python(program, *args):
    command = [sys.executable, "-c", program, *args]
    return subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=False)


def test_every_benchmark_imports_and_returns_figures():
    done = python(ASK, *NAMES)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {name: [[], "list[Figure]"] for name in NAMES}
    assert len(NAMES) >= 4


def test_figures_and_failures_stand_in_the_table(tmp_path):
    readme = tmp_path / "README.md"
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    readme.write_text(text, encoding="utf-8")
    done = python(RUN, str(readme))
    assert done.returncode == 0, done.stderr
    written = readme.read_text(encoding="utf-8")
    before, _, rest = text.partition("<!-- results")
    assert written.startswith(before)
    assert written.endswith(rest.partition("<!-- end of results -->")[2])
    assert "| 2 s | at most 1 | NO |" in written
    assert "| nowhere: failed (ModuleNotFoundError" in written
    table = [line for line in written.splitlines() if line.startswith("| ")]
    assert {line.replace("\\|", "").count("|") for line in table} == {7}


@pytest.mark.parametrize("text", ["no markers", "<!-- results: written by run.py --> only one"])
def test_a_readme_without_its_markers_is_left_alone(tmp_path, text):
    readme = tmp_path / "README.md"
    readme.write_text(text, encoding="utf-8")
    done = python(RUN, str(readme))
    assert done.returncode == 1
    assert "has lost its markers" in done.stderr
    assert readme.read_text(encoding="utf-8") == text
    assert list(tmp_path.iterdir()) == [readme]
