"""What sourcing a vendor's set_env.sh does to the environment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from migrate_kit.environment.commands import run
from migrate_kit.environment.facts import Sourced

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MOST = 1 << 20
# The script's name and arguments are arguments of bash, never part of its text. The end of what
# the script itself prints does not matter: only the environment is printed here.
_TEXT = (
    'f=$1; shift; source "$f" "$@" >/dev/null 2>&1 </dev/null; '
    'printf "%s\\0" "$?"; exec /usr/bin/env -0'
)
# Bash's own, which say nothing of the script.
_OWN = {"_", "SHLVL", "PWD", "OLDPWD"}


def source(
    script: str,
    environ: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
    seconds: float = 5.0,
) -> Sourced:
    """Source a script in a bash of its own, and return the variables that it changes.

    Parameters
    ----------
    script : str
        The file.
    environ : mapping, optional
        What to start from; by default this process's own variables.
    arguments : sequence of str
        Arguments for the script, such as ``--cxx_abi=1`` for NNAL's.
    seconds : float
        The time limit.
    """
    before = dict(os.environ if environ is None else environ)
    bash = next((b for b in ("/bin/bash", "/usr/bin/bash") if Path(b).is_file()), "bash")
    command = [bash, "--noprofile", "--norc", "-c", _TEXT, "bash", script, *arguments]
    # As os.environ holds what is no UTF-8: such a variable would else seem to be changed.
    answer = run(command, seconds, environ=before, most=2 * _MOST, errors="surrogateescape")
    if answer.code != 0:
        return Sourced(answer.code, problem=(answer.err or "bash failed")[:500])
    code, _, rest = answer.out.partition("\0")
    after = dict(pair.partition("=")[::2] for pair in rest.split("\0") if "=" in pair)
    changes = {
        name: value
        for name, value in sorted(after.items())
        if before.get(name) != value and name not in _OWN
    }
    failed = "" if code == "0" else f"the script ended with exit code {code}"
    return Sourced(int(code) if code.isascii() and code.isdigit() else None, changes, failed)


def source_all(
    scripts: Sequence[str], cxx_abi: str, environ: Mapping[str, str] | None = None
) -> dict[str, Sourced]:
    """Source several scripts, each on top of the ones before it."""
    now = dict(os.environ if environ is None else environ)
    found: dict[str, Sourced] = {}
    for script in scripts:
        # NNAL has its libraries once for each C++ ABI of torch.
        extra = [f"--cxx_abi={cxx_abi}"] if cxx_abi and "nnal" in Path(script).parts else []
        found[script] = source(script, now, extra)
        now |= found[script].changes
    return found
