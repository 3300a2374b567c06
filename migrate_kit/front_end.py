"""Live widgets where JupyterLab runs in another environment than the kernel.

A hub or a cloud notebook starts JupyterLab from an environment of its own. The widgets' JavaScript
must then lie where that JupyterLab looks: the user's data folder is one such place, and the kernel
may write there.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migrate_kit.errors import MigrateError
from migrate_kit.results import Finding, Result, findings_html, table_html

if TYPE_CHECKING:
    import pandas as pd

# anywidget without the manager shows static HTML; the manager without anywidget shows a broken
# icon. So anywidget first: if the second copy fails, what is left still reads.
EXTENSIONS = ("anywidget", "@jupyter-widgets/jupyterlab-manager")


@dataclass(frozen=True)
class Step:
    """What happened to one extension: ``copied``, ``already there``, ``missing`` or ``kept``."""

    extension: str
    version: str
    before: str
    action: str


@dataclass(repr=False)
class FrontEnd(Result):
    """What :func:`setup_front_end` did, an extension a row."""

    kind = "front_end"
    steps: list[Step] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def to_frame(self) -> pd.DataFrame:
        """Return extension, version, the version before, and what was done."""
        import pandas as pd

        return pd.DataFrame([vars(step) for step in self.steps])

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return super().to_dict() | {"steps": [vars(step) for step in self.steps]}

    def __repr__(self) -> str:
        did = "; ".join(f"{step.extension} {step.action}" for step in self.steps)
        return f"FrontEnd({'ok' if self.ok else 'NOT OK'}: {did})"

    def _html(self) -> str:
        rows = [(s.extension, s.version, s.before, s.action) for s in self.steps]
        head = ("extension", "version", "before", "done")
        return table_html(repr(self), head, rows) + findings_html(self.findings)


def setup_front_end(data_folder: str | os.PathLike[str] | None = None) -> FrontEnd:
    """Copy the widgets' front-end files from this kernel to the user's Jupyter data folder.

    Call it where a live widget shows as a static table or a broken icon, then reload the browser
    page; the server need not restart. Calling it again changes nothing.

    Parameters
    ----------
    data_folder : path, optional
        Jupyter's data folder; by default the one that Jupyter names.

    Raises
    ------
    MigrateError
        If the folder cannot be written; what was there before stays whole.
    """
    source = Path(sys.prefix) / "share" / "jupyter" / "labextensions"
    target = (Path(data_folder) if data_folder else _data_folder()) / "labextensions"
    result = FrontEnd()
    for name in EXTENSIONS:
        _set_up(name, source / name, target / name, result)
    if any(step.action == "copied" for step in result.steps):
        result.findings.append(
            Finding("info", "new front-end files", "the browser page", "reload the page (F5)")
        )
    return result


def _set_up(name: str, source: Path, target: Path, result: FrontEnd) -> None:
    version, before = _version(source), _version(target)
    if not version:
        action = "missing"
        package = "anywidget" if name == "anywidget" else "ipywidgets"
        result.findings.append(
            Finding(
                "error", f"{name} is not in this kernel's environment", "", f"install {package}"
            )
        )
    elif version == before or source.resolve() == target.resolve():
        action = "already there"
    elif target.is_symlink():
        # A developer's link to a source tree: replacing it would surprise, writing through it harm.
        action = "kept"
        result.findings.append(
            Finding("warning", f"{name} is a link", target.name, "remove the link, then call again")
        )
    else:
        _copy(source, target)
        action = "copied"
        if before:
            result.findings.append(
                Finding(
                    "info",
                    f"{name} {before} was replaced by {version}",
                    "the user's Jupyter data folder",
                    "a kernel that needs the older one calls setup_front_end() itself",
                )
            )
    result.steps.append(Step(name, version, before, action))


def _copy(source: Path, target: Path) -> None:
    part = target.with_name(f".{target.name}.partial-{os.getpid()}")
    old = target.with_name(f".{target.name}.old-{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, part)
        if target.exists():
            target.rename(old)
        try:
            part.rename(target)
        except OSError:
            if old.exists():
                old.rename(target)
            raise
    except (OSError, shutil.Error) as error:
        raise MigrateError(
            f"cannot copy the widgets' files: {error}",
            str(target),
            "free some space, or make the folder writable; as_page() needs neither",
        ) from error
    finally:
        # A leading dot would not keep JupyterLab from loading a half copy left here.
        shutil.rmtree(part, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _version(folder: Path) -> str:
    try:
        return str(json.loads((folder / "package.json").read_text(encoding="utf-8"))["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _data_folder() -> Path:
    try:
        from jupyter_core.paths import jupyter_data_dir
    except ModuleNotFoundError as error:
        raise MigrateError(
            "this environment has no Jupyter",
            "setup_front_end()",
            "call it in the notebook's kernel, or pip install 'migrate-kit[workbook]'",
        ) from error
    return Path(jupyter_data_dir())
