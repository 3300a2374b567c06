"""Which variables of the vendors' scripts this process lacks."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from migrate_kit.environment.cann import set_env_scripts
from migrate_kit.environment.places import resolve
from migrate_kit.environment.variables import variables

if TYPE_CHECKING:
    from migrate_kit.environment.facts import Facts

# Lists of folders: what counts is whether the script's own are in them.
PATHS = {"LD_LIBRARY_PATH", "PYTHONPATH", "PATH", "CMAKE_PREFIX_PATH", "MANPATH"}


def lacking(facts: Facts) -> list[str]:
    """Return the variables that sourcing the scripts would set or extend.

    With the scripts' own effect at hand, all of them; without it (no process was started), those of
    the table that are not set, and LD_LIBRARY_PATH without the folder of CANN's libraries.
    """
    now = facts.kernel.environ | {"LD_LIBRARY_PATH": facts.kernel.loader_path}
    sourced = [s for s in facts.sourced.values() if not s.problem]
    if sourced:
        changes = {k: v for s in sourced for k, v in s.changes.items()}
        return [
            n for n, value in changes.items() if n in _KNOWN and _adds(n, value, now.get(n, ""))
        ]
    if not facts.ascend.cann:
        return []
    lost = [v.name for v in variables() if v.kind == "set_env" and v.group == "ascend"]
    lost = [name for name in lost if name not in PATHS and not now.get(name)]
    libraries = f"{facts.ascend.cann[0].root}/lib64"
    on_path = any(_same(p, libraries) for p in now["LD_LIBRARY_PATH"].split(":") if p)
    return lost if on_path else ["LD_LIBRARY_PATH", *lost]


_KNOWN = {v.name for v in variables() if v.kind.startswith("set_env")}


def _adds(name: str, value: str, here: str) -> bool:
    if name not in PATHS:
        return not here
    return bool({p for p in value.split(":") if p} - {p for p in here.split(":") if p})


def _same(one: str, other: str) -> bool:
    return one.rstrip("/") == other or resolve(Path(one)) == resolve(Path(other))


def source_command(facts: Facts) -> str:
    """Return the command that sources what is here, quoted."""
    abi = facts.torch.cxx11_abi if facts.torch else ""
    parts = []
    for script in set_env_scripts(facts.ascend):
        extra = [f"--cxx_abi={abi}"] if abi and "nnal" in Path(script).parts else []
        parts.append(shlex.join(["source", script, *extra]))
    return " && ".join(parts)
