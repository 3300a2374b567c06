"""Make notebooks fit to be committed: keep what reads without a kernel, drop the rest.

* Widget views go: the id of a model that is gone tomorrow shows as "model not found" in a trusted
  notebook. What stands beside them (text/html) stays and is shown.
* The state of widgets goes: it is what GitHub stumbles over, and it carries whole scripts.
* Times, collapsed flags and the reader's own kernel name go.

    python tools/publish.py notebooks/*.ipynb           clean them in place
    python tools/publish.py --check notebooks/*.ipynb   only say which are not clean
"""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nbformat

if TYPE_CHECKING:
    from collections.abc import Sequence

VIEW = "application/vnd.jupyter.widget-view+json"
KERNEL = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
# "reason" says why nbval is told not to compare a cell.
KEPT_CELL_METADATA = ("tags", "reason")


def clean(notebook: Any) -> Any:
    """Return a cleaned copy of a notebook."""
    notebook = copy.deepcopy(notebook)
    notebook.metadata = nbformat.from_dict(
        {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    )
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict(
            {k: v for k, v in cell.metadata.items() if k in KEPT_CELL_METADATA}
        )
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if _clean_output(output)]
    return notebook


def write(notebook: Any, path: Path) -> None:
    """Write beside the target and rename, so that an interrupt leaves the old notebook whole."""
    part = path.with_name(f"{path.name}.partial-{Path(sys.argv[0]).stem}")
    try:
        nbformat.write(notebook, part)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def main(arguments: Sequence[str]) -> int:
    """Clean or check the named notebooks; 1 if any was not clean."""
    check = "--check" in arguments
    changed = 0
    for name in arguments:
        if name.startswith("--"):
            continue
        path = Path(name)
        before = nbformat.read(path, as_version=4)
        after = clean(before)
        if after != before:
            changed += 1
            print(f"{name}: {'not clean' if check else 'cleaned'}")
            if not check:
                write(after, path)
    return int(changed > 0)


def _clean_output(output: Any) -> bool:
    output.get("metadata", {}).clear()
    data = output.get("data")
    if data is None or VIEW not in data:
        return True
    del data[VIEW]
    return bool(data)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
