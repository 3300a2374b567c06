"""Run every notebook without a browser.

Without arguments the executed copies go to build/notebooks and one page with all of them to
build/index.html; your project is used. With --in-place the notebooks themselves are run on the
embedded sample and written back, cleaned for a commit.
"""

from __future__ import annotations

import html
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).parent))
import publish

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = ROOT / "notebooks"
BUILD = ROOT / "build"
CELL_TIMEOUT = 300


def main(arguments: Sequence[str]) -> int:
    """Run them all; 1 if any failed."""
    if strange := {a for a in arguments if a.startswith("-")} - {"--in-place"}:
        print(
            f"no option {' '.join(sorted(strange))}; usage: run_notebooks.py [--in-place] [FILE...]"
        )
        return 2
    in_place = "--in-place" in arguments
    named = [Path(a).resolve() for a in arguments if not a.startswith("--")]
    paths = named or sorted(find(NOTEBOOKS))
    if not paths:
        print(f"no notebooks in {NOTEBOOKS.name}/")
        return 1
    with tempfile.TemporaryDirectory() as scratch:
        # Outputs to commit must not depend on whose machine, project or earlier run this is.
        sample = {"MIGRATE_KIT_PROJECT": "sample", "MIGRATE_KIT_RESULTS": scratch}
        env = os.environ | (sample if in_place else {})
        results = [run(path, env, in_place=in_place) for path in paths]
    failed = [path.name for path, _, error in results if error]
    if not in_place:
        page = BUILD / "index.html"
        page.write_text(as_page(results), encoding="utf-8")
        print(f"one page with all of them: {page.relative_to(ROOT)}")
    print(f"{len(failed)} of {len(results)} failed: {', '.join(failed)}" if failed else "all ran")
    return int(bool(failed))


def find(folder: Path) -> Iterator[Path]:
    """Yield the notebooks below a folder, without Jupyter's own backups."""
    for path in folder.rglob("*.ipynb"):
        if ".ipynb_checkpoints" not in path.parts:
            yield path


def run(path: Path, env: dict[str, str], *, in_place: bool) -> tuple[Path, Any, str]:
    """Run one notebook, write the executed one, return it with what went wrong."""
    notebook = nbformat.read(path, as_version=4)
    began, error = time.monotonic(), ""
    total = sum(cell.cell_type == "code" and bool(cell.source.strip()) for cell in notebook.cells)
    with tqdm(total=total, desc=path.stem, unit="cell", disable=None) as bar:
        client = NotebookClient(
            notebook,
            timeout=CELL_TIMEOUT,
            kernel_name="python3",
            store_widget_state=False,
            record_timing=False,
            extra_arguments=["--log-level=ERROR"],  # not its warning about TCP, once a notebook
            on_cell_executed=lambda **_: bar.update(),
            # Where Jupyter would run it, so that relative paths mean the same.
            resources={"metadata": {"path": str(path.parent)}},
        )
        try:
            client.execute(env=env)
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as caught:
            error = str(caught)
    seconds = time.monotonic() - began
    print(f"{'FAILED' if error else 'ran'} {path.relative_to(ROOT)} in {seconds:.1f} s", flush=True)
    if error:
        print(error, file=sys.stderr)
    if not in_place:
        copy = BUILD / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        publish.write(notebook, copy)
    elif not error:
        publish.write(publish.clean(notebook), path)
    return path, notebook, error


def as_page(results: Sequence[tuple[Path, Any, str]]) -> str:
    """Return one HTML page that holds every notebook and asks no network for anything."""
    from nbconvert import HTMLExporter

    lines = ["# migrate-kit: every notebook, as it ran here", ""]
    cells = []
    for path, notebook, error in results:
        name = html.escape(path.stem)
        lines.append(f"- [{name}](#{name}): {'**failed**' if error else 'ran'}")
        cells.append(nbformat.v4.new_markdown_cell(f'<a id="{name}"></a>\n\n---'))
        cells += publish.clean(notebook).cells
    cells.insert(0, nbformat.v4.new_markdown_cell("\n".join(lines)))
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"  # two notebooks may use the same ids
    whole = nbformat.v4.new_notebook(
        cells=cells, metadata={"kernelspec": publish.KERNEL, "language_info": {"name": "python"}}
    )
    # The template names a CDN for these two; without them the page is complete in itself.
    exporter = HTMLExporter(mathjax_url="", require_js_url="", embed_images=True)
    text, _ = exporter.from_notebook_node(whole, resources={"metadata": {"name": "migrate-kit"}})
    return str(text)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
