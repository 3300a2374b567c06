"""Make faulty environments, let the doctor find the faults, and keep what it read as fixtures.

python tools/test_environments.py             all of them
python tools/test_environments.py numpy-2-mindspore-2.10
python tools/test_environments.py --keep      leave build/overlays for a look

Each is a folder that `pip install --no-deps --target` fills and PYTHONPATH puts in front of .venv:
pip itself would refuse most of them. Packages come from pip's own configuration; MindSpore takes
2.6 GB of disk meanwhile, which is given back at the end. `make test` judges the kept fixtures
again and downloads nothing.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OVERLAYS = ROOT / "build" / "overlays"
FIXTURES = ROOT / "data" / "environments"
GIGABYTES = 5
# What MindSpore needs beyond .venv.
MINDSPORE = ("mindspore==2.10.0", "astunparse", "dill")


@dataclass(frozen=True)
class Case:
    """One environment: its overlays in the order of PYTHONPATH, and an import that must fail."""

    name: str
    overlays: tuple[tuple[str, ...], ...]
    broken: str


CASES = (
    Case("torch_npu-2.14.0", (("torch_npu==2.14.0",),), "import torch"),
    Case("torch_npu-2.9.0", (("torch_npu==2.9.0",),), "import torch"),
    Case("torchvision-0.28.0", (("torchvision==0.28.0",),), "import torchvision"),
    Case(
        "numpy-2-mindspore-2.10",
        (("numpy==2.4.6",), MINDSPORE),
        "import mindspore; mindspore.Tensor([1.0]).reshape((1, 1))",
    ),
    Case("protobuf-3.20-mindspore-2.10", (("protobuf==3.20.3",), MINDSPORE), "import mindspore"),
)


def main(arguments: list[str]) -> int:
    """Run the named cases, or all; 1 if the doctor did not find exactly what was planted."""
    keep = "--keep" in arguments
    names = [a for a in arguments if not a.startswith("--")]
    if unknown := set(names) - {c.name for c in CASES}:
        print(f"no case {sorted(unknown)}; there are: {', '.join(c.name for c in CASES)}")
        return 2
    if (free := shutil.disk_usage(ROOT).free / 1e9) < GIGABYTES:
        print(f"{free:.1f} GB are free, {GIGABYTES} are needed")
        return 2
    try:
        wrong = [c.name for c in CASES if (not names or c.name in names) and not run(c)]
    finally:
        if not keep:
            shutil.rmtree(OVERLAYS, ignore_errors=True)
    print(f"\nwrong: {', '.join(wrong)}" if wrong else "\nevery fault was named, and no other")
    return int(bool(wrong))


def run(case: Case) -> bool:
    """Make one environment, judge it from inside, keep what was read; say if it was right."""
    print(f"\n=== {case.name}", flush=True)
    folders = [overlay(requirements) for requirements in case.overlays]
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, folders))}
    for name in ("TORCH_DEVICE_BACKEND_AUTOLOAD", "GLOG_v"):
        environ.pop(name, None)
    with tempfile.TemporaryDirectory(prefix="migrate-kit-environment-") as scratch:
        command = [sys.executable, "-c", case.broken]
        broken = subprocess.run(command, env=environ, cwd=scratch, capture_output=True, check=False)
        if broken.returncode == 0:
            print(f"{case.broken!r} works: the fault is not there")
            return False
        kept = Path(scratch) / "facts.json"
        command = [sys.executable, "-m", "migrate_kit.environment", "--save", str(kept)]
        target = next(row["target"] for row in expected() if row["fixture"] == case.name)
        command += ["--target", target] if target else []
        subprocess.run(command, env=environ, cwd=scratch, check=False)
        if not kept.exists():
            return False
        names = {str(f): f"/opt/overlays/{f.name}" for f in folders} | {scratch: "/opt/job"}
        FIXTURES.mkdir(parents=True, exist_ok=True)
        text = neutral(kept.read_text(encoding="utf-8"), names)
        (FIXTURES / f"{case.name}.json").write_text(text, encoding="utf-8")
    return judged(case.name)


def overlay(requirements: tuple[str, ...]) -> Path:
    """Fill a folder with packages, without what they need; once."""
    folder = OVERLAYS / requirements[0].replace("==", "-")
    if not folder.is_dir():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        pip += ["--no-deps", "--no-compile", "--no-cache-dir", "--target", str(folder)]
        subprocess.run([*pip, *requirements], check=True)
    return folder


def neutral(text: str, names: dict[str, str]) -> str:
    """Return a snapshot with neutral names in place of this machine's folders."""
    text = json.dumps(json.loads(text), indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    names |= {sys.prefix: "/opt/venv", str(ROOT): "/opt/migrate-kit", str(Path.home()): "/opt/me"}
    for path in sorted(names, key=len, reverse=True):
        text = text.replace(json.dumps(path)[1:-1], names[path])
    return text


def expected() -> list[dict[str, str]]:
    """Return what each fixture must give."""
    with (FIXTURES / "expected.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def judged(name: str) -> bool:
    """Judge a kept fixture and compare with what must be found."""
    from migrate_kit.environment.doctor import check_environment
    from migrate_kit.environment.facts import Facts

    right = True
    for row in expected():
        if row["fixture"] != name:
            continue
        facts = Facts.load(FIXTURES / f"{name}.json")
        report = check_environment(row["target"] or None, facts=facts)
        found = {c.id for c in report.checks if c.state == row["state"]}
        if found != set(row["ids"].split()):
            print(
                f"{row['state']}: expected {row['ids'] or 'none'}; found {' '.join(sorted(found))}"
            )
            right = False
    return right


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
