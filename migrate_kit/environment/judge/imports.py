"""What importing gave, joined with the causes that are already known."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from migrate_kit.environment.check import Check
from migrate_kit.environment.probes import PROGRAMS
from migrate_kit.errors import MigrateError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from migrate_kit.environment.facts import Facts, Probe
    from migrate_kit.targets import Target

_GROUP = "imports"
_PLAIN, _BARE = "torch", "torch without plug-ins"
_NO_DTYPE = "no dtype works: look at the operator packages of CANN"
_AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"


def with_imports(causes: list[Check], facts: Facts, goal: Target) -> list[Check]:
    """Add the imports: a failure with a known cause says so there, one without is its own check."""
    del goal
    checks = list(causes)
    torch_fails = facts.probes.get(_BARE, facts.probes.get(_PLAIN))
    for name, probe in facts.probes.items():
        if name == _BARE:
            continue
        if name == _PLAIN:
            checks += _torch(facts)
            continue
        if probe.code == 0 and not probe.error:
            checks.append(_works(name, probe))
            checks += _device(name, probe)
            continue
        if name not in {"mindspore", "onnxruntime"} and torch_fails and torch_fails.error:
            continue  # it imports torch, and that fails already
        package = PROGRAMS[name].package if name in PROGRAMS else name
        line = _first_error(probe)
        known = [i for i, c in enumerate(checks) if _explains(c) and _about(c, package)]
        if "cannot open shared object file" in line:  # the loader stopped before any symbol
            known.sort(key=lambda i: not checks[i].id.startswith(("cann-", "kernel-", "neuware-")))
        if known:
            first = checks[known[0]]
            checks[known[0]] = replace(first, why=f"{first.why}. Importing it here: {line}")
        else:
            checks.append(_fails(name, probe, line, facts))
    return checks


def _explains(check: Check) -> bool:
    # Without an NPU the absence of CANN is only told, and still is why the import fails.
    return check.state == "error" or (check.id == "cann-absent" and check.state == "info")


def _about(check: Check, package: str) -> bool:
    """Say whether a cause explains a failed import of a package."""
    if check.id.startswith(f"{package}-"):
        return True
    return package == "torch-npu" and check.id in {
        *("cann-absent", "kernel-variables", "cann-symbols", "driver-symbols", "cann-layout"),
    }


def _torch(facts: Facts) -> Iterator[Check]:
    plain, bare = facts.probes[_PLAIN], facts.probes.get(_BARE)
    if plain.code == 0 and not plain.error:
        yield _works(_PLAIN, plain)
        return
    line = _first_error(plain)
    if bare is None or bare.error:
        yield _fails(_PLAIN, plain, line, facts)
        return
    plugins = ", ".join(facts.backends) or "a plug-in"
    off = facts.kernel.environ.get(_AUTOLOAD) == "0"
    yield Check(
        "torch-autoload",
        _GROUP,
        "info" if off else "error",
        f"plain 'import torch' fails, because it loads {plugins} by itself"
        + (f"; {_AUTOLOAD}=0 is set here, so it does not" if off else ""),
        f"the plug-in cannot be loaded: {line}. Without it torch works, for the CPU",
        "" if off else f"export {_AUTOLOAD}=0",
        "torch/__init__.py, _import_device_backends",
    )


def _works(name: str, probe: Probe) -> Check:
    version = probe.said.get("version", "")
    what = f"import {name} works: {version}, {probe.seconds:.1f} s"
    if count := probe.said.get("count", "0").strip("0"):
        what += f", {count} device{'s' if count != '1' else ''}"
    return Check(f"import-{name}", _GROUP, "ok", what)


def _device(name: str, probe: Probe) -> Iterator[Check]:
    """Available, and a plain addition fails: the dtype, or the operators, or the driver."""
    added = {k.removeprefix("add "): v for k, v in probe.said.items() if k.startswith("add ")}
    failed = {k: v for k, v in added.items() if v != "True"}
    if not failed:
        return
    one, error = next(iter(failed.items()))
    fine = [k for k in added if k not in failed]
    yield Check(
        f"{name}-addition",
        _GROUP,
        "warning" if fine else "error",
        f"the device is available, but adding {', '.join(failed)} fails",
        f"{one}: {error}. "
        + (f"{', '.join(fine)} work: cast before the operator" if fine else _NO_DTYPE),
        "",
        "user reports",
    )


def _fails(name: str, probe: Probe, line: str, facts: Facts) -> Check:
    if probe.code is None:
        return Check(
            f"import-{name}",
            _GROUP,
            "warning",
            f"import {name} gave no answer",
            line,
            "",
            "a process of its own with a time limit",
        )
    why = _explained(probe) or "this command shows the whole message; mk.explain() reads it"
    again = shlex.join([facts.host.executable or "python", "-c", f"import {name}"])
    return Check(f"import-{name}", _GROUP, "error", f"import {name} fails: {line}", why, again)


def _first_error(probe: Probe) -> str:
    """Return the innermost exception: Python prints a chain of them from the inside out."""
    for line in probe.log.splitlines():
        name = line.partition(":")[0]
        said = line.partition(":")[2].strip()
        if said and name.replace(".", "").isidentifier() and name.endswith("Error"):
            return line.strip()[:400]
    return probe.error


def _explained(probe: Probe) -> str:
    """Return the cause and the cure that explain() knows for what was printed."""
    from migrate_kit.environment.explain import explain

    try:
        root = explain(probe.log or probe.error).root
    except MigrateError:  # a table that somebody has changed must not end the doctor
        return ""
    return f"{root.cause}; {root.fix}" if root is not None else ""
