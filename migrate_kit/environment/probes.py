"""Import what is risky in a process of its own, and see what happens."""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from migrate_kit.environment.commands import run
from migrate_kit.environment.facts import Probe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_MARK = "migrate-kit probe: "
_MOST_SAID, _MOST_LOG, _MOST_ERROR = 40, 1 << 15, 2000
_AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"

# Each prints one line of JSON. They are texts, not functions: they run in another process, where
# nothing of this package needs to be importable.
_SAY = f"""
import json, sys
def say(**said):
    sys.stdout.write({_MARK!r} + json.dumps({{k: str(v) for k, v in said.items()}}) + "\\n")
"""
_TORCH = """
import torch
say(version=torch.__version__, cuda=torch.version.cuda or "", threads=torch.get_num_threads(),
    sum=float((torch.ones(4) + 1).sum()))
"""
# The same addition that users report: available, and int64 fails.
_DEVICE = """
import torch
import {module}
device = torch.{device}
said = dict(version={module}.__version__, available=device.is_available(),
            count=device.device_count() if device.is_available() else 0)
if device.is_available():
    for name in ("float32", "float16", "bfloat16", "int32", "int64"):
        try:
            x = torch.ones(2, dtype=getattr(torch, name)).to("{device}")
            said["add " + name] = (x + x).cpu().tolist() == [2, 2]
        except Exception as error:
            said["add " + name] = type(error).__name__ + ": " + str(error)[:200]
say(**said)
"""
_TORCHVISION = """
import torch
import torchvision
kept = torchvision.ops.nms(torch.tensor([[0., 0., 2., 2.], [0., 0., 2., 2.]]), torch.ones(2), 0.5)
say(version=torchvision.__version__, kept=len(kept))
"""
_TORCHAUDIO = """
import torchaudio
say(version=torchaudio.__version__)
"""
# A reshape with a tuple is the first thing that breaks under NumPy 2.
_MINDSPORE = """
import numpy as np
import mindspore as ms
y = ms.Tensor(np.ones((2, 2), np.float32)).reshape((4,))
say(version=ms.__version__, numpy=np.__version__, sum=float(y.asnumpy().sum()))
"""
_ONNXRUNTIME = """
import onnxruntime
say(version=onnxruntime.__version__, providers=" ".join(onnxruntime.get_available_providers()))
"""


@dataclass(frozen=True)
class Program:
    """One probe: the package that must be installed for it, its text and its variables."""

    package: str
    text: str
    environ: dict[str, str] = field(default_factory=dict)


_PLAIN = {_AUTOLOAD: "0"}
# The slow ones first, so that two workers end together.
PROGRAMS = {
    "torch": Program("torch", _TORCH, {_AUTOLOAD: "1"}),
    "torch_npu": Program("torch-npu", _DEVICE.format(module="torch_npu", device="npu"), _PLAIN),
    "mindspore": Program("mindspore", _MINDSPORE),
    "torchvision": Program("torchvision", _TORCHVISION, _PLAIN),
    "torch without plug-ins": Program("torch", _TORCH, _PLAIN),
    "torch_mlu": Program("torch-mlu", _DEVICE.format(module="torch_mlu", device="mlu"), _PLAIN),
    "torchaudio": Program("torchaudio", _TORCHAUDIO, _PLAIN),
    "onnxruntime": Program("onnxruntime", _ONNXRUNTIME),
}


def probe(program: Program, seconds: float, environ: Mapping[str, str] | None = None) -> Probe:
    """Run one probe.

    Parameters
    ----------
    program : Program
        What to run.
    seconds : float
        The time limit; a probe that is over it is ended with all it started.
    environ : mapping, optional
        Variables of the process; by default this process's own.
    """
    base = dict(os.environ if environ is None else environ)
    arguments = [sys.executable, "-c", _SAY + program.text]
    answer = run(arguments, seconds, environ=base | program.environ)
    said: dict[str, str] = {}
    for line in answer.out.splitlines():
        if line.startswith(_MARK):
            said = _said(line.removeprefix(_MARK))
    done = answer.code == 0 and bool(said)
    return Probe(
        answer.code,
        round(answer.seconds, 2),
        said,
        "" if done else _last_line(answer.err, answer.code),
        "" if done else answer.err[-_MOST_LOG:],
    )


def run_all(
    installed: Iterable[str],
    seconds: float,
    others: Mapping[str, Callable[[], object]] | None = None,
) -> tuple[dict[str, Probe], dict[str, object]]:
    """Run the probes of the installed packages side by side, and other calls with them.

    Returns
    -------
    tuple of dict
        The probes by name, and what the other calls returned.
    """
    packages, cores = set(installed), len(os.sched_getaffinity(0))
    chosen = {n: p for n, p in PROGRAMS.items() if p.package in packages}
    with ThreadPoolExecutor(max_workers=min(4, max(2, cores))) as pool:
        asked = {n: pool.submit(call) for n, call in (others or {}).items()}
        probes = {n: pool.submit(probe, p, seconds) for n, p in chosen.items()}
        return (
            {n: future.result() for n, future in probes.items()},
            {n: future.result() for n, future in asked.items()},
        )


def _said(text: str) -> dict[str, str]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(values, dict):
        return {}
    return {str(k): str(v) for k, v in list(values.items())[:_MOST_SAID]}


def _last_line(log: str, code: int | None) -> str:
    """Return the exception that ended a probe, or how else it ended."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    if code is None:
        return lines[-1][:_MOST_ERROR] if lines else "no answer"
    if code < 0:
        said = next((x for x in reversed(lines) if "Error" in x or "what():" in x), "")
        return f"ended by signal {-code}" + (f" after: {said}"[:_MOST_ERROR] if said else "")
    # Exceptions stand at the left edge; what follows them may be a line of a log.
    named = [x for x in log.splitlines() if _is_exception(x)]
    return (named or lines or [f"exit code {code}"])[-1][:_MOST_ERROR]


def _is_exception(line: str) -> bool:
    name = line.partition(":")[0]
    return name.replace(".", "").isidentifier() and name.endswith(("Error", "Exception", "Exit"))
