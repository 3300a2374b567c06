"""Run every ``bench_*.py`` here, print one table, and write it into README.md.

``python benchmarks/run.py [NAME ...]`` runs the named ones (``capture compare``) and writes
nothing.
"""

from __future__ import annotations

import datetime as dt
import importlib
import importlib.metadata
import os
import platform
import re
import sys
import tempfile
import time
from pathlib import Path

import peers
from figure import Figure, markdown_table, plain_table
from measure import Others

HERE = Path(__file__).resolve().parent
README = HERE / "README.md"
BEGIN, END = "<!-- results: written by run.py -->", "<!-- end of results -->"
LIBRARIES = ("torch", "torchvision", "numpy", "safetensors")


def main(names: list[str]) -> int:
    """Run; return 1 if a target is missed or a benchmark failed."""
    found = sorted(p.stem.removeprefix("bench_") for p in HERE.glob("bench_*.py"))
    if unknown := [n for n in names if n not in found]:
        print(f"no benchmark is called {unknown[0]!r}; there are: {', '.join(found)}")
        return 2
    others, figures = Others(), []
    for name in names or found:
        began = time.perf_counter()
        print(f"{name} ...", end=" ", file=sys.stderr, flush=True)
        figures += _figures(name)
        print(f"{time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    about = circumstances(others.used())
    print(f"{about}\n\n{plain_table(figures)}")
    if not names:
        write(README, f"{about}\n\n{markdown_table(figures)}")
    return int(any(f.passed is False for f in figures))


def _figures(name: str) -> list[Figure]:
    try:
        figures: list[Figure] = importlib.import_module(f"bench_{name}").main()
    except Exception as error:  # noqa: BLE001 - one failed benchmark must not hide the others
        print(f"\n{error}", file=sys.stderr)
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        return [Figure(f"{name}: failed ({reason[:80]})", None, "", passed=False)]
    return figures


def circumstances(others: float) -> str:
    """Say when and on what the numbers were measured."""
    versions = [f"Python {platform.python_version()}"]
    versions += [f"{name} {importlib.metadata.version(name)}" for name in LIBRARIES]
    versions.append(peers.MSPROBE.replace("==", " ") + " (peer)")
    today = dt.datetime.now(tz=dt.timezone.utc).date()
    return (
        f"{today}, {processor()}, {os.cpu_count()} processors of which other programs used"
        f" {others:.1f} meanwhile; {', '.join(versions)}."
    )


def processor() -> str:
    """Return the processor's name, with its instruction set: a virtual one's name says little."""
    name, widest = platform.processor() or platform.machine(), ""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        text = cpuinfo.read_text(encoding="utf-8", errors="replace")
        if named := re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE):
            name = named[1].strip()
        flags = set(text.split())
        widest = next((f" ({w})" for w in ("avx512f", "avx2") if w in flags), "")
    return f"{name}{widest}"


def write(readme: Path, result: str) -> None:
    """Replace what stands between the markers; the rest of the file is kept."""
    text = readme.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{readme.name} has lost its markers: {BEGIN} and {END}")
    handle, name = tempfile.mkstemp(prefix=f"{readme.name}.partial-", dir=readme.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as out:
        out.write(f"{before}{BEGIN}\n{result}\n{END}{after}")
    Path(name).chmod(readme.stat().st_mode)
    Path(name).replace(readme)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
