"""What nbval does not look at: it passes a notebook without outputs, and one GitHub cannot show."""

import re
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import publish  # noqa: E402

NOTEBOOKS = sorted(
    p for p in (ROOT / "notebooks").rglob("*.ipynb") if ".ipynb_checkpoints" not in p.parts
)
MOST_LINES, MOST_BYTES = 15, 300_000
# Snapshots of environments name folders that stand for anybody's: /opt/venv, /opt/overlays.
PRIVATE = re.compile(
    r"(?<![\w.:/])/(?!opt/(?:venv|overlays|job)\b)(?:home|root|tmp|work|Users|var|opt|mnt)/[\w.-]+|[A-Z]:\\Users"
)
ADDRESS = re.compile(r"\bat 0x[0-9a-f]{6,}")
UNCOMPARED = {"nbval-ignore-output", "nbval-skip"}
UNCOMPARED_COMMENT = re.compile(r"#\s*(?:NBVAL_\w+|PYTEST_VALIDATE_IGNORE_OUTPUT)")


def code(nb):
    return [c for c in nb.cells if c.cell_type == "code" and c.source.strip()]


def text_of(output):
    data = output.get("data", {})
    parts = [output.get("text", ""), "\n".join(output.get("traceback", []))]
    return "\n".join([*parts, *(str(v) for k, v in data.items() if k.startswith("text/"))])


def problems(nb):
    """Return what keeps a notebook from being committed, in words."""
    cells, found = code(nb), []
    nbformat.validate(nb)
    if not nb.cells or not re.match(r"# \S", nb.cells[0].source):
        found.append("the first cell is no title")
    if [c.execution_count for c in cells] != list(range(1, len(cells) + 1)):
        found.append("was not run once from top to bottom")
    if sum(bool(c.outputs) for c in cells) < len(cells) / 3:
        found.append("holds no outputs to compare")
    if "widgets" in nb.metadata:
        found.append("holds widget state")
    if nb.metadata.get("kernelspec", {}).get("name") != "python3":
        found.append("asks for a kernel of its own")
    if len(nbformat.writes(nb)) > MOST_BYTES:
        found.append("is large")
    if publish.clean(nb) != nb:
        found.append("was not cleaned")
    for cell in cells:
        first = cell.source.splitlines()[0]
        if len(cell.source.splitlines()) > MOST_LINES:
            found.append(f"a long cell: {first}")
        if UNCOMPARED & set(cell.metadata.get("tags", [])) and not cell.metadata.get("reason"):
            found.append(f"not compared, without a reason: {first}")
        if UNCOMPARED_COMMENT.search(cell.source):
            found.append(f"a comment in place of a tag: {first}")
        for output in cell.outputs:
            if publish.VIEW in output.get("data", {}):
                found.append(f"a widget view: {first}")
            if "<script" in str(output.get("data", {}).get("text/html", "")).lower():
                found.append(f"a script: {first}")
            if PRIVATE.search(text_of(output)):
                found.append(f"somebody's folder: {first}")
            if ADDRESS.search(text_of(output)):
                found.append(f"an address in memory: {first}")
    return found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.name)
def test_is_fit(path):
    assert problems(nbformat.read(path, as_version=4)) == []


def test_there_are_notebooks():
    assert NOTEBOOKS


def sound():
    v4 = nbformat.v4
    outputs = [v4.new_output("execute_result", {"text/plain": "2"}, execution_count=1)]
    cells = [
        v4.new_markdown_cell("# A title", id="a"),
        v4.new_code_cell("1 + 1", execution_count=1, outputs=outputs, id="b"),
    ]
    return publish.clean(v4.new_notebook(cells=cells))


def output(**data):
    return nbformat.v4.new_output("display_data", {k.replace("_", "/"): v for k, v in data.items()})


def change(nb, what):
    cell = nb.cells[1]
    match what:
        case "title":
            nb.cells[0].source = "## A title"
        case "order":
            cell.execution_count = 7
        case "outputs":
            cell.outputs = []
        case "state":
            nb.metadata["widgets"] = {}
        case "kernel":
            nb.metadata.kernelspec.name = "my-env"
        case "large":
            nb.cells[0].source += "x" * MOST_BYTES
        case "long":
            cell.source = "1\n" * 16
        case "tag":
            cell.metadata["tags"] = ["nbval-ignore-output"]
        case "comment":
            cell.source = "1  # NBVAL_IGNORE_OUTPUT"
        case "view":
            cell.outputs[0].data[publish.VIEW] = {"model_id": "1"}
        case "script":
            cell.outputs.append(output(text_html="<script>1</script>"))
        case "folder":
            cell.outputs.append(output(text_plain="'/" + "root/x.onnx'"))
        case "address":
            cell.outputs.append(output(text_plain="<object at 0x7f0011223344>"))


def test_a_sound_one_passes():
    assert problems(sound()) == []


@pytest.mark.parametrize(
    "what",
    [
        *["title", "order", "outputs", "state", "kernel", "large", "long"],
        *["tag", "comment", "view", "script", "folder", "address"],
    ],
)
def test_each_rule_catches_its_fault(what):
    nb = sound()
    change(nb, what)
    assert problems(nb)


def test_cleaning_mends_what_it_can():
    nb = sound()
    change(nb, "view")
    change(nb, "state")
    nb.cells[1].metadata["execution"] = {"iopub.execute_input": "2026-01-01"}
    assert problems(publish.clean(nb)) == []
    assert nb.cells[1].outputs[0].data["text/plain"] == "2"
