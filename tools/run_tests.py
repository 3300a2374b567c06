"""Every check in one command, with a summary.

python tools/run_tests.py               all of them
python tools/run_tests.py ruff mypy     only these
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[1]
AXE = "axe-core@4.14.1"
# A step that hangs must not hang for ever; the longest takes a third of this.
STEP_SECONDS = 1200
PYTEST = ["pytest", "-p", "no:cacheprovider"]


@dataclass(frozen=True)
class Step:
    """One check: a module to run with arguments, and the folders it is about."""

    name: str
    arguments: list[str]
    folders: tuple[str, ...] = ()


STEPS = [
    Step("ruff", ["ruff", "check", "."]),
    Step("format", ["ruff", "format", "--check", "."]),
    Step("mypy", ["mypy"]),
    Step(
        "unit",
        [
            *[*PYTEST, "-p", "no:playwright", "tests"],
            *["--ignore=tests/widgets", "--ignore=tests/browser", "--ignore=tests/porting"],
        ],
    ),
    # In a process of its own: after graph mode was on, MindSpore 2.10 gives LayerNorm's gradient a
    # wrong number of inputs for the rest of the process.
    Step("porting", [*PYTEST, "-p", "no:playwright"], ("tests/porting",)),
    # A snippet may import what only its user has; the house tests compile them.
    Step(
        "doctest",
        [
            *[*PYTEST, "-p", "no:playwright", "--doctest-modules", "migrate_kit"],
            "--ignore-glob=migrate_kit/snippets/[!_]*",
        ],
    ),
    Step("widgets", PYTEST, ("tests/widgets", "tests/browser")),
    Step(
        "notebooks",
        [
            *[*PYTEST, "-p", "no:playwright", "--nbval", "--nbval-current-env"],
            *["--nbval-cell-timeout", "90", "--nbval-sanitize-with", "tests/nbval.cfg"],
        ],
        ("notebooks",),
    ),
]


def main(names: Sequence[str]) -> int:
    """Run the named steps, or all; 1 if any failed."""
    unknown = set(names) - {step.name for step in STEPS}
    if unknown:
        print(f"no step {sorted(unknown)}; there are: {', '.join(s.name for s in STEPS)}")
        return 2
    steps = [step for step in STEPS if not names or step.name in names]
    summary = []
    with tempfile.TemporaryDirectory(prefix="migrate-kit-test-") as scratch:
        for number, step in enumerate(steps, 1):
            print(f"\n=== [{number}/{len(steps)}] {step.name}", flush=True)
            began = time.monotonic()
            result = run(step, environment(Path(scratch)))
            summary.append((step.name, result, time.monotonic() - began))
    print("\n" + "=" * 60)
    for name, result, seconds in summary:
        print(f"{name:<12} {result:<32} {seconds:7.1f} s")
    print(f"{'all':<12} {'':<32} {sum(s for *_, s in summary):7.1f} s")
    return int(any(result.startswith("FAILED") for _, result, _ in summary))


def run(step: Step, env: dict[str, str]) -> str:
    """Run one step and say in two words how it went."""
    folders = [f for f in step.folders if any((ROOT / f).rglob("*"))]
    if step.folders and not folders:
        return "nothing there"
    if step.name == "widgets":
        fetch_axe()
    command = [sys.executable, "-m", *step.arguments, *folders]
    # A process group of its own: a hung step's browser and kernels go with it.
    process = subprocess.Popen(command, cwd=ROOT, env=env, start_new_session=True)
    try:
        code = process.wait(STEP_SECONDS)
    except subprocess.TimeoutExpired:
        stop(process)
        return f"FAILED: over {STEP_SECONDS} s"
    except BaseException:
        stop(process)
        raise
    return "passed" if code == 0 else f"FAILED (exit code {code})"


def environment(scratch: Path) -> dict[str, str]:
    """Return an environment in which nothing of the user's own is read or replaced."""
    return os.environ | {
        # The kernels' plain "python" is this one.
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        # Stored outputs are those of the embedded sample, without earlier results.
        "MIGRATE_KIT_PROJECT": "sample",
        "MIGRATE_KIT_RESULTS": str(scratch / "results"),
        "IPYTHONDIR": str(scratch / "ipython"),
    }


def fetch_axe() -> None:
    """Fetch axe-core, which the accessibility tests inject; without it they skip and say so."""
    folder = ROOT / "build" / "npm"
    if (folder / "node_modules" / "axe-core" / "axe.min.js").exists():
        return
    npm = shutil.which("npm")
    if not npm:
        print("npm is not installed: the accessibility tests will be skipped", flush=True)
        return
    folder.mkdir(parents=True, exist_ok=True)
    quiet = ["--no-audit", "--no-fund", "--ignore-scripts", "--no-save", "--prefer-offline"]
    command = [npm, "install", "--prefix", str(folder), *quiet, AXE]
    try:
        done = subprocess.run(command, timeout=180, capture_output=True, text=True, check=False)
        problem = done.stderr.strip() if done.returncode else ""
    except subprocess.TimeoutExpired:
        problem = "no answer within 180 s"
    if problem:
        print(f"axe-core could not be fetched, its tests will be skipped: {problem}", flush=True)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a step and everything it started."""
    os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
