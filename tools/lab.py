"""Open JupyterLab at the first notebook and say how to reach it.

The token stays: whoever has the URL with it may run code here, nobody else. It is read from the
file that the server writes for its owner, so it is right whatever LAB_ARGS or a configuration say.
"""

from __future__ import annotations

import getpass
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FIRST = "notebooks/00_start_here.ipynb"
DEADLINE = 120.0
# What a server may listen on that this machine calls localhost.
EVERYWHERE = ("", "*", "localhost", "127.0.0.1", "::1", "0.0.0.0", "::")  # noqa: S104
# No news, no update check, no extension shop: the workbook opens no connection by itself.
OFFLINE = [
    "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    "--LabApp.news_url=",
    "--LabApp.extension_manager=readonly",
]
OVERRIDES = {
    "@jupyterlab/apputils-extension:notification": {
        "checkForUpdates": False,
        "fetchNews": "false",
    }
}


def main() -> int:
    """Start the server, print its URL, wait for its end."""
    headless = not has_display(os.environ)
    stop_asking_for_news()
    server = subprocess.Popen(
        command(headless=headless), cwd=ROOT, env=environment(), start_new_session=False
    )
    # Ctrl-C reaches the server too, which asks before it stops; this process only waits for it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: server.terminate())
    info = wait_for(server)
    if info:
        print(banner(info, headless=headless), flush=True)
    return server.wait()


def has_display(environ: Any) -> bool:
    """Say whether a browser opened here would be seen by whoever typed the command."""
    if environ.get("SSH_CONNECTION"):
        return False
    return sys.platform == "darwin" or bool(
        environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY")
    )


def command(*, headless: bool) -> list[str]:
    """Return JupyterLab's command line; LAB_ARGS come last and win."""
    first = ROOT / FIRST
    return [
        sys.executable,
        "-P",  # tools/ is no place to import from
        str(Path(__file__).with_name("quiet_lab.py")),
        f"--ServerApp.root_dir={ROOT}",
        # Or the banner scrolls away; JupyterLab has a level beside its server's.
        "--log-level=WARN",
        "--LabApp.log_level=WARN",
        *OFFLINE,
        *(["--no-browser"] if headless else []),
        *(["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []),
        *shlex.split(os.environ.get("LAB_ARGS", "")),
        *([str(first)] if first.exists() else []),
    ]


def environment() -> dict[str, str]:
    """Return the environment in which `!pip` and `!python` in a cell are the workbook's own."""
    return os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


def stop_asking_for_news() -> None:
    """Write JupyterLab's overrides.json into this .venv, unless somebody wrote one."""
    folder = Path(sys.prefix) / "share" / "jupyter" / "lab" / "settings"
    file = folder / "overrides.json"
    if sys.prefix != sys.base_prefix and not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(OVERRIDES, indent=1), encoding="utf-8")


def wait_for(server: subprocess.Popen[bytes]) -> dict[str, Any] | None:
    """Return what the server writes about itself once it listens; None if it ended."""
    from jupyter_core.paths import jupyter_runtime_dir

    file = Path(jupyter_runtime_dir()) / f"jpserver-{server.pid}.json"
    until = time.monotonic() + DEADLINE
    while server.poll() is None and time.monotonic() < until:
        try:
            info: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):  # not there yet, or half written
            time.sleep(0.1)
        else:
            return info
    return None


def banner(info: dict[str, Any], *, headless: bool) -> str:
    """Return what a newcomer needs to know, and no more."""
    if info.get("sock"):  # LAB_ARGS asked for it; JupyterLab itself says how to reach that
        return "\nThe workbook is open. Stop with Ctrl-C.\n"
    port, listens = info["port"], info.get("hostname", "")
    own = "localhost" if listens in EVERYWHERE else f"[{listens}]" if ":" in listens else listens
    # Through the tunnel, whatever the server listens on is this computer's port.
    host = "localhost" if headless else own
    scheme = "https" if info.get("secure") else "http"
    token = f"?token={info['token']}" if info.get("token") else ""
    page = f"lab/tree/{FIRST}" if (ROOT / FIRST).exists() else "lab"
    lines = [
        "",
        "-" * 78,
        f"The workbook is open. Its address{', with the token that lets you in' if token else ''}:",
        "",
        f"    {scheme}://{host}:{port}{info['base_url']}{page}{token}",
        "",
    ]
    if headless:
        here = os.environ.get("SSH_CONNECTION", "").split()
        machine = here[2] if len(here) > 2 else "THIS-MACHINE"
        lines += [
            "No display here. From your own computer, first:",
            "",
            f"    ssh -L {port}:{own}:{port} {user()}@{machine}",
            "",
            "and then open the address above in your own browser.",
            "",
        ]
    lines += ["Stop with Ctrl-C.", "-" * 78, ""]
    return "\n".join(lines)


def user() -> str:
    """Return the user's name; a container's number may have none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "USER"


if __name__ == "__main__":
    sys.exit(main())
