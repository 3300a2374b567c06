"""Run a program with a list of arguments, a time limit and a limit to what is read of it."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST = 1 << 18


@dataclass(frozen=True)
class Answer:
    """What a program answered.

    Attributes
    ----------
    code : int or None
        Its exit code, the negative number of the signal that ended it, or None if it gave no answer
        in time or could not be started; ``err`` then says why.
    out, err : str
        What it printed; of a long text the beginning and the end.
    seconds : float
        How long it took.
    """

    code: int | None
    out: str = ""
    err: str = ""
    seconds: float = 0.0


def run(
    arguments: Sequence[str],
    seconds: float,
    *,
    environ: Mapping[str, str] | None = None,
    most: int = MOST,
    errors: str = "replace",
) -> Answer:
    r"""Run one program without a shell, and end it with all it started when the time is up.

    Parameters
    ----------
    arguments : sequence of str
        The program and its arguments, as a list.
    seconds : float
        The time limit.
    environ : mapping, optional
        Its environment; this process's own by default.
    most : int
        Bytes kept of each stream; what comes in between is read and dropped.
    errors : str
        What becomes of bytes that are no UTF-8, as :meth:`bytes.decode` names it.

    Examples
    --------
    >>> run(["echo", "a b"], 5.0).out
    'a b\n'
    """
    began = time.monotonic()
    try:
        process = subprocess.Popen(  # noqa: S603 - a list of arguments, no shell
            list(arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=None if environ is None else dict(environ),
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return Answer(None, "", f"cannot be started: {error}", time.monotonic() - began)
    kept = (_Kept(most), _Kept(most))
    try:
        in_time = _read(process, kept, began + seconds)
    finally:
        # Everything it started, too: a child may hold the pipes or the device. It has not been
        # waited for yet, so its number cannot be another's by now.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
    spent = time.monotonic() - began
    out, err = (k.text(errors) for k in kept)
    if not in_time:
        return Answer(None, out, f"{err}\nno answer within {seconds:g} s".strip(), spent)
    return Answer(process.returncode, out, err, spent)


class _Kept:
    """The beginning and the end of a stream."""

    def __init__(self, most: int) -> None:
        self._half, self._head, self._tail, self._dropped = most // 2, b"", b"", 0

    def add(self, piece: bytes) -> None:
        room = max(0, self._half - len(self._head))
        self._head += piece[:room]
        self._tail += piece[room:]
        if (extra := len(self._tail) - self._half) > 0:
            self._tail, self._dropped = self._tail[extra:], self._dropped + extra

    def text(self, errors: str) -> str:
        gap = f"\n... {self._dropped} bytes left out ...\n".encode() if self._dropped else b""
        return (self._head + gap + self._tail).decode("utf-8", errors)


def _read(process: subprocess.Popen[bytes], kept: tuple[_Kept, _Kept], until: float) -> bool:
    """Read both streams until they end and the program is gone; False when the time is up."""
    with selectors.DefaultSelector() as waiting:
        streams: tuple[IO[bytes] | None, ...] = (process.stdout, process.stderr)
        for stream, keep in zip(streams, kept, strict=True):
            if stream is not None:
                waiting.register(stream, selectors.EVENT_READ, keep)
        while waiting.get_map():
            # A child may hold a pipe open after the program itself has ended.
            if _ended(process.pid) and not waiting.select(0):
                break
            left = until - time.monotonic()
            if left <= 0:
                return False
            for key, _ in waiting.select(min(left, 0.2)):
                piece = os.read(key.fd, 1 << 16)
                if piece:
                    key.data.add(piece)
                else:
                    waiting.unregister(key.fileobj)
    while not _ended(process.pid):
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def _ended(number: int) -> bool:
    """Say whether a child has ended, and leave it to be waited for."""
    return os.waitid(os.P_PID, number, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
