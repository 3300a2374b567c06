"""The same of msprobe (PyPI ``mindstudio-probe``); runs in the peers' environment.

``run_msprobe.py capture TASK THREADS ROUNDS``, ``run_msprobe.py memory THREADS``,
``run_msprobe.py traces FOLDER``, ``run_msprobe.py compare A B OUT``,
``run_msprobe.py command A B OUT``.
"""

from __future__ import annotations

import copy
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure import answer, extra_memory, ratio, resnet50

if TYPE_CHECKING:
    from collections.abc import Callable


class Dump:
    """Dump every module (level L0) of a model's forward, as msprobe's guide does it.

    PrecisionDebugger is a singleton, so one process measures one task.
    """

    def __init__(self, model: Any, x: Any, task: str, folder: Path) -> None:
        from msprobe.pytorch import PrecisionDebugger

        config = {
            "task": task,
            "dump_path": str(folder),
            "rank": [],
            "step": [],
            "level": "L0",
            "async_dump": False,
            "extra_info": True,
            "statistics": {
                "scope": [],
                "list": [],
                "tensor_list": [],
                "data_mode": ["all"],
                "summary_mode": "statistics",
            },
            "tensor": {"scope": [], "list": [], "data_mode": ["all"]},
        }
        path = folder / "config.json"
        path.write_text(json.dumps(config), encoding="utf-8")
        self.model, self.x, self.folder = model, x, folder
        self.debugger = PrecisionDebugger(config_path=str(path))

    def __call__(self) -> None:
        """Run once; the files of this step are complete afterwards."""
        import torch

        self.debugger.start(model=self.model)
        with torch.no_grad():
            self.model(self.x)
        self.debugger.stop()
        self.debugger.step()

    def tidy(self) -> None:
        """Remove the steps written so far."""
        for step in self.folder.glob("step*"):
            shutil.rmtree(step)


def capture(task: str, threads: str, rounds: str) -> None:
    """Time a dump against a plain forward of a copy that msprobe has no hooks on."""
    import torch

    model, x = resnet50(int(threads))
    untouched = copy.deepcopy(model)
    folder = Path(tempfile.mkdtemp(dir=Path.cwd()))
    try:
        dump = Dump(model, x, task, folder)

        def plain() -> None:
            with torch.no_grad():
                untouched(x)

        found = ratio(plain, dump, int(rounds), dump.tidy)
    finally:
        shutil.rmtree(folder)
    answer(found)


def memory(threads: str) -> None:
    """Measure what a dump of all tensors takes of memory."""
    model, x = resnet50(int(threads))
    folder = Path(tempfile.mkdtemp(dir=Path.cwd()))
    try:
        dump = Dump(model, x, "tensor", folder)
        found = extra_memory(dump, dump.tidy)
    finally:
        shutil.rmtree(folder)
    answer({"call": found})


def traces(folder: str) -> None:
    """Write one dump as it is, and one of another float32 arithmetic: oneDNN off."""
    import torch

    model, x = resnet50(1)
    dump = Dump(model, x, "tensor", Path(folder))
    dump()
    torch.backends.mkldnn.set_flags(False)
    dump()
    a, b = (next(Path(folder).glob(f"step{i}/*/dump.json")) for i in (0, 1))
    size = sum(f.stat().st_size for f in a.parent.rglob("*") if f.is_file())
    answer({"a": str(a), "b": str(b), "MB": size / 1e6})


def compare(reference: str, candidate: str, out: str) -> None:
    """Time the import and one comparison by the function behind ``msprobe compare``."""
    began = time.perf_counter()
    from msprobe.pytorch.compare.pt_compare import pt_compare

    imported = time.perf_counter()
    paths = {"npu_path": candidate, "bench_path": reference, "is_print_compare_log": False}
    Path(out).mkdir(parents=True, exist_ok=True)
    pt_compare(paths, out)
    ended = time.perf_counter()
    with next(Path(out).glob("compare_result_*.csv")).open(encoding="utf-8") as file:
        rows = sum(1 for _ in file) - 1
    answer({"import": imported - began, "compare": ended - imported, "rows": rows})


def command_line(reference: str, candidate: str, out: str) -> None:
    """Be ``msprobe compare``, the command; :func:`measure.ask` takes its time from outside."""
    from msprobe.msprobe import main

    sys.argv = ["msprobe", "compare", "-tp", candidate, "-gp", reference, "-o", out]
    main()
    answer({"written": sum(1 for _ in Path(out).glob("compare_result_*.csv"))})


if __name__ == "__main__":
    verbs: dict[str, Callable[..., None]] = {
        "capture": capture,
        "memory": memory,
        "traces": traces,
        "compare": compare,
        "command": command_line,
    }
    verbs[sys.argv[1]](*sys.argv[2:])
