"""Write a Jupyter kernel, or a shell script, that sets variables."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from typing import TYPE_CHECKING

from migrate_kit.environment.kernel import user_data
from migrate_kit.environment.places import as_path, exists, text
from migrate_kit.errors import MigrateError
from migrate_kit.files import write_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OURS = "migrate_kit"
_MOST_SPEC = 1 << 22


def write_kernel(
    name: str,
    variables: Mapping[str, str],
    *,
    prefix: str | os.PathLike[str] | None = None,
    replace: bool = False,
) -> Path:
    """Write ``kernels/NAME/kernel.json`` for this Python with these variables.

    Raises
    ------
    MigrateError
        If the name is not one for a kernel, is another kernel's, or cannot be written to.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise MigrateError(
            f"a kernel cannot be named {str(name)[:80]!r}",
            "kernel_spec(name)",
            "use letters, digits, dots, dashes and underscores, such as 'ascend'",
        )
    path = _data(prefix) / "kernels" / name.lower() / "kernel.json"
    if exists(path) and not replace and not _is_ours(path):
        raise MigrateError(
            f"there is a kernel {name!r} that was not written here",
            str(path),
            "choose another name, or say replace=True",
        )
    spec = {
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": f"Python ({name})",
        "language": "python",
        # jupyter_client fills in ${NAME} in these: a dollar sign of the value is doubled.
        "env": {k: v.replace("$", "$$") for k, v in sorted(_checked(variables).items())},
        "metadata": {"debugger": True, _OURS: {"written_by": "kernel_spec"}},
    }
    return write_text(path, json.dumps(spec, indent=1, ensure_ascii=False) + "\n")


def _data(prefix: str | os.PathLike[str] | None) -> Path:
    if prefix is not None:
        return as_path(prefix, "kernel_spec(prefix=)") / "share" / "jupyter"
    data = user_data(os.environ)
    if data is None:
        raise MigrateError(
            "there is no home folder to write a kernel to: HOME is not set",
            "kernel_spec(prefix=)",
            "set HOME or JUPYTER_DATA_DIR, or name an environment: prefix=sys.prefix",
        )
    return data


def write_script(path: Path, variables: Mapping[str, str]) -> Path:
    """Write ``export`` lines, quoted, for a shell to source."""
    lines = [f"export {k}={shlex.quote(v)}" for k, v in sorted(_checked(variables).items())]
    said = "# Source this before Jupyter or Python starts:  source " + shlex.quote(path.name)
    # A name with a line break must not end the comment.
    head = said.replace("\n", " ").replace("\r", " ")
    # A variable that is no UTF-8 is written as the bytes that it is.
    return write_text(path, "\n".join([head, *lines]) + "\n", errors="surrogateescape")


def _checked(variables: Mapping[str, str]) -> dict[str, str]:
    # Bash exports functions under names such as BASH_FUNC_x%%, which no shell can set by name.
    return {k: v for k, v in variables.items() if _VARIABLE.fullmatch(k) and "\0" not in v}


def _is_ours(path: Path) -> bool:
    try:
        return _OURS in json.loads(text(path, _MOST_SPEC))["metadata"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
