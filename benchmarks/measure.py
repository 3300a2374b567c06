"""Timing on a machine that others use too. Also read by the peers' environment: torch and the
standard library only.

A plain forward and the thing to be measured take turns, each pair gives one ratio, and the median
is taken over the half of the pairs during which other programs used the processors least. The
choice looks at the others' processor time, never at the ratios.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

WARM_UP = 2
# Enough for a median; a busy machine gets no more than these once the time is up.
FEWEST = 6
PATIENCE = 15.0


class Others:
    """Processor time, in processors, that programs other than this one use meanwhile."""

    def __init__(self) -> None:
        self._began, self._busy, self._own = time.perf_counter(), _busy(), _own()

    def used(self) -> float:
        """Return the mean since this object was made; 0 where the system does not tell."""
        wall = time.perf_counter() - self._began
        return max(0.0, (_busy() - self._busy) - (_own() - self._own)) / wall


def _busy() -> float:
    try:
        with Path("/proc/stat").open(encoding="ascii") as file:
            # user, nice, system, idle, iowait, irq, softirq, steal (proc(5)); guest is in user.
            user, nice, system, _, _, irq, soft, steal = map(int, file.readline().split()[1:9])
    except (OSError, ValueError):
        return _own()
    return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")


def _own() -> float:
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def seconds(call: Callable[[], Any]) -> float:
    """Return the wall time of one call."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def quieter(taken: list[tuple[float, ...]]) -> list[tuple[float, ...]]:
    """Return the half during which others used least, which is what each tuple begins with."""
    # By the others' time alone: a tie must not be broken by what was measured.
    return sorted(taken, key=lambda one: one[0])[: (len(taken) + 1) // 2]


def ratio(
    plain: Callable[[], Any],
    call: Callable[[], Any],
    rounds: int,
    tidy: Callable[[], Any] = lambda: None,
) -> dict[str, float]:
    """Return how many times a plain call ``call`` takes, and both in seconds.

    ``tidy`` runs after each ``call``, outside the timing.
    """
    pairs: list[tuple[float, ...]] = []
    began = time.perf_counter()
    for index in range(WARM_UP + rounds):
        if len(pairs) >= FEWEST and time.perf_counter() - began > PATIENCE:
            break
        others = Others()
        one, many = seconds(plain), seconds(call)
        if index >= WARM_UP:
            pairs.append((others.used(), many / one, one, many))
        tidy()
    _, ratios, ones, manys = map(statistics.median, zip(*quieter(pairs), strict=True))
    return {"ratio": ratios, "plain": ones, "call": manys}


def extra_memory(call: Callable[[], Any], tidy: Callable[[], Any] = lambda: None) -> float:
    """Return by how many MB (10^6 bytes) private memory rises at most during ``call``.

    The largest of some calls: on a busy machine a sampler misses peaks, and never invents one.
    """
    for _ in range(WARM_UP):
        call()
        tidy()
    return max(_rise(call, tidy) for _ in range(FEWEST)) / 1e6


def _rise(call: Callable[[], Any], tidy: Callable[[], Any]) -> int:
    _give_back()
    before = peak = _private()
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.002):
            peak = max(peak, _private())

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    call()
    done.set()
    watcher.join()
    tidy()
    return peak - before


def _give_back() -> None:
    """Return to the system what is free: memory kept from the warm-up would hide the rise."""
    gc.collect()
    with contextlib.suppress(AttributeError):  # a C library without it
        ctypes.CDLL(None).malloc_trim(0)


def _private() -> int:
    with Path("/proc/self/status").open(encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon")) * 1024


def resnet50(threads: int) -> tuple[Any, Any]:
    """Return the network and one image; the same numbers in every process."""
    import torch
    import torchvision

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = torchvision.models.resnet50(weights=None).eval()
    return model, torch.randn(1, 3, 224, 224)


def ask(python: str | Path, script: str, *args: Any, threads: int = 1) -> dict[str, Any]:
    """Run ``script`` of this folder in a process of its own; return what it answered.

    What it prints is kept back, and shown only if it fails.

    Raises
    ------
    RuntimeError
        If it failed.
    """
    number = str(threads)
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    with tempfile.TemporaryDirectory(prefix="migrate-kit-bench-") as folder:
        answer = Path(folder) / "answer.json"
        environment = {**os.environ, **dict.fromkeys(names, number), "BENCH_ANSWER": str(answer)}
        command = [str(python), str(Path(__file__).with_name(script)), *map(str, args)]
        began = time.perf_counter()
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        wall = time.perf_counter() - began
        if done.returncode or not answer.exists():
            said = "\n".join((done.stdout + done.stderr).splitlines()[-12:])
            raise RuntimeError(f"{script} {' '.join(map(str, args))} failed:\n{said}")
        return {"wall": wall, **json.loads(answer.read_text(encoding="utf-8"))}


def fresh(python: str | Path, program: str) -> Any:
    """Run a program in a new interpreter; return the JSON in the last line of its stderr.

    The last line: a package may print while it is imported.
    """
    done = subprocess.run([str(python), "-c", program], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{python} failed:\n{done.stderr[-1000:]}")
    return json.loads(done.stderr.rsplit("\n", 1)[-1])


def answer(content: dict[str, Any]) -> None:
    """Hand the result of a script started by :func:`ask` back to it."""
    where = os.environ.get("BENCH_ANSWER")
    text = json.dumps(content)
    if where is None:
        sys.stdout.write(f"{text}\n")
    else:
        Path(where).write_text(text, encoding="utf-8")
