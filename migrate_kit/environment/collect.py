"""Take the snapshot that the doctor judges by."""

from __future__ import annotations

import datetime as dt
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migrate_kit.environment import probes as room
from migrate_kit.environment.cambricon import find_cambricon
from migrate_kit.environment.cann import find_ascend, set_env_scripts
from migrate_kit.environment.devices import ask, devices
from migrate_kit.environment.facts import Command, Facts
from migrate_kit.environment.host import read_host
from migrate_kit.environment.kernel import read_kernel
from migrate_kit.environment.libraries import Loader, cxx11_abi, examine, library
from migrate_kit.environment.metadata import plugins
from migrate_kit.environment.packages import packages, torch_build
from migrate_kit.environment.places import is_file
from migrate_kit.environment.set_env import source_all

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from migrate_kit.environment.facts import Ascend, Build, Library, Package

_COMMAND_SECONDS = 5.0


def collect(
    *,
    probe: bool = True,
    seconds: float = 30.0,
    path: Sequence[str] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Facts:
    """Read this machine; nothing of the vendors is imported into this process.

    Parameters
    ----------
    probe : bool
        Whether to start other processes: imports, ``npu-smi``, ``cnmon``, the vendors' scripts.
    seconds : float
        The time limit of one import.
    path : sequence of str, optional
        Where packages are looked up; by default ``sys.path``.
    environ : mapping, optional
        The variables to judge; by default this process's own.

    Returns
    -------
    Facts
        The snapshot. Variables that are not known to matter are not in it.
    """
    environ = os.environ if environ is None else environ
    found = packages(path)
    backends, damaged = plugins(path)
    kernel = read_kernel(environ)
    loaded = _loaded_first(found)
    loader = Loader(kernel.loader_path, loaded)
    build = _build(found.get("torch"))
    ascend = find_ascend(environ)
    facts = Facts(
        taken=dt.datetime.now(tz=dt.timezone.utc).date().isoformat(),
        probed=probe,
        host=read_host(loader, environ),
        kernel=kernel,
        packages=found,
        backends=backends,
        damaged=damaged,
        torch=build,
        libraries=(*examine(found, loader), *_driver_symbols(ascend, loader)),
        ascend=ascend,
        cambricon=find_cambricon(environ),
        devices=devices(),
    )
    return _with_processes(facts, seconds) if probe else facts


def _with_processes(facts: Facts, seconds: float) -> Facts:
    abi = facts.torch.cxx11_abi if facts.torch else ""
    calls: dict[str, Callable[[], object]] = {
        name: partial(ask, name, _COMMAND_SECONDS) for name in ("npu-smi", "cnmon", "gcc")
    }
    scripts = list(set_env_scripts(facts.ascend))
    calls["scripts"] = partial(source_all, scripts, abi)
    probes, answers = room.run_all(facts.packages, seconds, calls)
    sourced: Any = answers.pop("scripts")
    commands = {n: a for n, a in answers.items() if isinstance(a, Command)}
    gcc = commands.pop("gcc", Command())
    return replace(
        facts,
        host=replace(facts.host, gcc=gcc.out.strip() if gcc.code == 0 else ""),
        probes=probes,
        commands=commands,
        sourced=sourced,
    )


def _loaded_first(found: dict[str, Package]) -> list[Path]:
    torch = found.get("torch")
    return [Path(torch.folder) / "torch" / "lib"] if torch and torch.folder else []


def _build(torch: Package | None) -> Build | None:
    if torch is None or not torch.version:
        return None
    abi = cxx11_abi(Path(torch.folder) / "torch" / "lib" / "libc10.so")
    return replace(torch_build(torch), cxx11_abi=abi)


def _driver_symbols(ascend: Ascend, loader: Loader) -> list[Library]:
    """Ask CANN's runtime what it takes from the driver: an old driver lacks some of it."""
    if not ascend.cann or not ascend.hal:
        return []
    root = Path(ascend.cann[0].root)
    given = set(loader.read(Path(ascend.hal)).defined)
    files = [root / "lib64" / name for name in ("libruntime.so", "libascendcl.so")]
    return [library("cann", file, root, loader, given) for file in files if is_file(file)]
