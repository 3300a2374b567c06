"""Ask for what is in an HDF5 file; the HDF5 library runs in a process of its own."""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migrate_kit.errors import MigrateError
from migrate_kit.results import plain

if TYPE_CHECKING:
    from migrate_kit.checkpoints.formats.source import Source

_SCRIPT = Path(__file__).with_name("hdf5_process.py")
_LONGEST_LINE = 1 << 16
# No plugins of filters, and no threads in a process that forks.
_ENVIRON = {"HDF5_PLUGIN_PRELOAD": "::", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}


class _Reader:
    """The process, started at the first question and again if it is gone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def ask(self, question: dict[str, Any]) -> tuple[str, bytearray]:
        """Return what went wrong, or an empty text, and the answer."""
        with self._lock:
            process = self._running()
            try:
                return self._exchange(process, json.dumps(question).encode() + b"\n")
            except (OSError, ValueError):
                self.stop()
                return "the process that reads HDF5 has ended", bytearray()
            except BaseException:
                # An interrupt between question and answer: the next answer must not be this one.
                self.stop()
                raise

    def stop(self) -> None:
        """End the process; it has nothing to lose."""
        process, self._process = self._process, None
        if process is None:
            return
        if self._owner == os.getpid():
            # Its forks as well: they hold the pipe that is waited for.
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return
        # In a fork it is the parent's: only the copies of its pipes are closed here.
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        process.returncode = 0

    def _running(self) -> subprocess.Popen[bytes]:
        # A fork of this process would read the answers of its parent.
        if self._owner != os.getpid() or (self._process and self._process.poll() is not None):
            self.stop()
        if self._process is None:
            self._owner = os.getpid()
            self._process = subprocess.Popen(  # noqa: S603 - a list of arguments, no shell
                [sys.executable, str(_SCRIPT)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=os.environ | _ENVIRON,
                start_new_session=True,
            )
        return self._process

    @staticmethod
    def _exchange(process: subprocess.Popen[bytes], line: bytes) -> tuple[str, bytearray]:
        if process.stdin is None or process.stdout is None:
            raise ValueError("no pipes")
        process.stdin.write(line)
        process.stdin.flush()
        head = json.loads(process.stdout.readline(_LONGEST_LINE))
        data = bytearray(head["size"])
        view, at = memoryview(data), 0
        while at < len(data):
            count = process.stdout.readinto(view[at:])  # type: ignore[attr-defined]
            if not count:
                raise ValueError("the answer is cut off")
            at += count
        return str(head["error"]), data


_READER = _Reader()
atexit.register(_READER.stop)


def listing(source: Source) -> dict[str, Any]:
    """Return the datasets of a file: each its shape, dtype and place, if it can be mapped."""
    found: dict[str, Any] = json.loads(_ask(source, None))
    return found


def values(source: Source, dataset: str) -> bytearray:
    """Return the values of a dataset, little endian."""
    return _ask(source, dataset)


def _ask(source: Source, dataset: str | None) -> bytearray:
    if importlib.util.find_spec("h5py") is None:
        raise MigrateError(
            "an HDF5 file, and h5py is not installed", str(source.path), "pip install h5py"
        )
    error, answer = _READER.ask({"path": str(source.path.absolute()), "dataset": dataset})
    if error:
        where = f"{plain(dataset)[:80]}: " if dataset else ""
        raise source.damaged(where + plain(error)[:300])
    return answer
