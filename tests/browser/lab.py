"""A real JupyterLab on a free port, and a notebook in it driven as a reader would."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

SETTINGS = {
    "@jupyterlab/apputils-extension/notification": {
        "checkForUpdates": False,
        "doNotDisturbMode": True,
        "fetchNews": "false",
    },
    "@jupyterlab/docmanager-extension/plugin": {"autosave": False},
}
# An icon nobody has, and what JupyterLab itself asks for and does without.
BENIGN = ("favicon", "Failed to load resource: the server responded with a status of 404")
STATUS = """() => {
  const panel = window.jupyterapp?.shell?.currentWidget;
  return panel?.sessionContext?.session?.kernel?.status ?? 'none';
}"""


@dataclass(frozen=True)
class Lab:
    """A running server."""

    url: str
    token: str
    root: Path

    def address(self, notebook: str) -> str:
        return f"{self.url}lab/tree/{notebook}?token={self.token}&reset"


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@contextlib.contextmanager
def running_lab(
    root: Path,
    work: Path,
    *,
    theme: str = "JupyterLab Light",
    base_url: str = "/",
    deadline: float = 90.0,
    env: dict[str, str] | None = None,
) -> Iterator[Lab]:
    """Serve ``root`` with everything Jupyter writes kept in ``work``; stop it afterwards."""
    settings = work / "settings"
    for name, value in {
        **SETTINGS,
        "@jupyterlab/apputils-extension/themes": {"theme": theme, "adaptive-theme": False},
    }.items():
        path = settings / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(value))
    folders = {
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        "IPYTHONDIR": "ipython",
    }
    token, port = secrets.token_hex(16), free_port()
    url = f"http://127.0.0.1:{port}{base_url}"
    # fmt: off
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1",
        f"--port={port}", "--ServerApp.port_retries=0", f"--ServerApp.root_dir={root}",
        f"--ServerApp.base_url={base_url}", f"--IdentityProvider.token={token}",
        "--expose-app-in-browser", "--LabApp.news_url=", "--ServerApp.open_browser=False",
    ]
    # fmt: on
    log = work / "jupyterlab.log"
    with log.open("w") as out:
        server = subprocess.Popen(
            command,
            # The kernel spec starts plain "python": this environment's must be the first.
            env=os.environ
            | {key: str(work / name) for key, name in folders.items()}
            | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
            | (env or {}),
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
        try:
            _wait_until_it_answers(server, f"{url}api?token={token}", deadline, log)
            yield Lab(url, token, root)
        finally:
            server.send_signal(signal.SIGTERM)  # it stops its kernels before it goes
            try:
                server.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait(5)


def _wait_until_it_answers(
    server: subprocess.Popen[bytes], url: str, deadline: float, log: Path
) -> None:
    end = time.monotonic() + deadline
    while time.monotonic() < end and server.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=1) as reply:  # noqa: S310 - our own address
            reply.read()
            return
        time.sleep(0.1)
    message = f"JupyterLab did not start:\n{log.read_text()[-3000:]}"
    raise RuntimeError(message)


def write_notebook(path: Path, *cells: str) -> Path:
    """Write code cells as a notebook of the plain kernel."""
    made = [
        {
            "cell_type": "code",
            "id": f"cell-{i}",
            "metadata": {},
            "execution_count": None,
            "outputs": [],
            "source": cell,
        }
        for i, cell in enumerate(cells)
    ]
    kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    book = {
        "cells": made,
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    path.write_text(json.dumps(book))
    return path


@dataclass
class Notebook:
    """One notebook open in a page."""

    page: Any
    lab: Lab
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda e: self.problems.append(f"pageerror: {e}"))

    def _console(self, message: Any) -> None:
        if message.type == "error" and not message.text.startswith(BENIGN):
            self.problems.append(message.text)

    def open(self, name: str) -> None:
        self.page.goto(self.lab.address(name), wait_until="domcontentloaded")
        self.page.wait_for_selector(".jp-NotebookPanel .jp-Notebook", timeout=60_000)
        self.wait_until_idle()

    def wait_until_idle(self) -> None:
        self.page.wait_for_function(f"({STATUS})() === 'idle'", timeout=60_000)

    def command(self, name: str) -> None:
        """Start one of JupyterLab's commands without waiting for its end."""
        self.page.evaluate("(c) => { window.jupyterapp.commands.execute(c) }", name)

    def run_all(self) -> None:
        self.page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-cells')")
        self.wait_until_idle()

    def type_everywhere_in(self, view: Any) -> None:
        """Type letters in every part of a view; none may become a command of the notebook."""
        cells = self.page.locator(".jp-Notebook .jp-Cell")
        before = cells.count()
        for stop in view.locator("[data-lm-suppress-shortcuts]").all():
            if stop.is_visible():
                stop.focus()
                for key in "abdd":
                    self.page.keyboard.press(key)
        self.page.wait_for_timeout(300)
        assert cells.count() == before
