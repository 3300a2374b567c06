"""What this machine can run: the frameworks and devices that are really here."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from migrate_kit.environment.facts import UNKNOWN
from migrate_kit.environment.metadata import installed, places, read_metadata
from migrate_kit.results import Finding, Result, table_html

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd

# What runs a step, the package it needs, and the device node that its driver makes.
_PARTS = (
    ("PyTorch on the CPU", "torch", None),
    ("ONNX Runtime", "onnxruntime", None),
    ("MindSpore on the CPU", "mindspore", None),
    ("Ascend NPU", "torch-npu", "/dev/davinci[0-9]*"),
    ("Cambricon MLU", "torch-mlu", "/dev/cambricon_dev[0-9]*"),
    ("CUDA", "torch", "/dev/nvidia[0-9]*"),
)


@dataclass(frozen=True)
class Part:
    """One thing that can run a network here, or cannot and why."""

    name: str
    state: str
    why: str = ""


class Machine(Result):
    """What :func:`machine` found; ``parts`` by name."""

    kind = "machine"

    def __init__(self, parts: list[Part]) -> None:
        self.parts = parts
        self.findings = [
            Finding(
                "info",
                f"{p.name} is not here; what needs it is rehearsed on the CPU, and says so",
                "",
                p.why,
            )
            for p in parts
            if p.state == "absent"
        ]

    def to_frame(self) -> pd.DataFrame:
        """Return one line a part."""
        import pandas as pd

        return pd.DataFrame([asdict(p) for p in self.parts])

    def __repr__(self) -> str:
        ready = [p.name for p in self.parts if p.state == "ready"]
        return f"Machine({', '.join(ready) or 'nothing'} ready)"

    def _html(self) -> str:
        rows = [(p.name, p.state, p.why) for p in self.parts]
        return table_html(repr(self), ("what", "state", "why"), rows)


def machine() -> Machine:
    """Say what can run a network here, without importing any framework.

    Importing ``torch_npu`` without its driver breaks ``torch`` in the same process, so only package
    metadata and device nodes are looked at.

    Returns
    -------
    Machine
        Each part is ``ready``, ``absent`` (a device) or ``not installed`` (a package).

    Examples
    --------
    >>> machine().parts[0].name
    'PyTorch on the CPU'
    """
    memory, cores = _memory_gib(), len(os.sched_getaffinity(0))
    parts = [Part("this machine", "ready", f"{cores} cores, {memory:.0f} GiB of memory")]
    parts = [*(_part(*p) for p in _PARTS), *parts]
    return Machine(parts)


def _part(name: str, package: str, nodes: str | None) -> Part:
    version = _version(package)
    if nodes is None:
        if version is None:
            return Part(name, "not installed", f"pip install {package}")
        return Part(name, "ready", f"{package} {version}")
    devices = sorted(p.name for p in _glob(nodes))
    if devices and version is not None:
        return Part(name, "ready", f"{package} {version}, {', '.join(devices)}")
    missing = [] if devices else [f"no device {nodes}"]
    if version is None:
        missing.append(f"{package} is not installed")
    return Part(name, "absent", "; ".join(missing))


def _glob(pattern: str) -> Iterable[Path]:
    path = Path(pattern)
    return path.parent.glob(path.name)


def _version(package: str) -> str | None:
    found = installed(package, places(None))
    return (read_metadata(found[0], whole=False).version or UNKNOWN) if found else None


def _memory_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
