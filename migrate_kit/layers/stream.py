"""Write bytes to a file on a second thread, through a few reused blocks of memory.

The caller's memory may change as soon as :meth:`Pump.write` returns, and never more than
``BLOCKS * BLOCK_BYTES`` is waiting. Copying into a warm block costs a tenth of writing to
a new file.
"""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLOCK_BYTES: Final = 1 << 21
BLOCKS: Final = 8


class Pump:
    """Append to the file descriptor ``fd``; the file stays the caller's to close."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._blocks = [np.empty(BLOCK_BYTES, np.uint8) for _ in range(BLOCKS)]
        self._free: queue.SimpleQueue[int] = queue.SimpleQueue()
        for index in range(BLOCKS):
            self._free.put(index)
        self._full: queue.SimpleQueue[tuple[int, int] | None] = queue.SimpleQueue()
        self._error: OSError | None = None
        self._thread = threading.Thread(target=self._work, name="migrate-kit-pump", daemon=True)
        self._thread.start()

    def write(self, data: NDArray[np.uint8]) -> None:
        """Queue a row of bytes.

        Raises
        ------
        OSError
            If an earlier block could not be written.
        """
        for start in range(0, data.size, BLOCK_BYTES):
            part = data[start : start + BLOCK_BYTES]
            index = self._free.get()
            if self._error is not None:
                raise self._error
            self._blocks[index][: part.size] = part
            self._full.put((index, part.size))

    def close(self) -> None:
        """Wait until everything is written.

        Raises
        ------
        OSError
            If something could not be written.
        """
        if self._thread.is_alive():
            self._full.put(None)
            self._thread.join()
        if self._error is not None:
            raise self._error

    def cancel(self) -> None:
        """Stop, whatever happened."""
        with contextlib.suppress(OSError):
            self.close()

    def _work(self) -> None:
        while (item := self._full.get()) is not None:
            index, size = item
            if self._error is None:
                try:
                    data = self._blocks[index][:size].data
                    while data:
                        data = data[os.write(self._fd, data) :]
                except OSError as error:
                    self._error = error
            # After an error blocks are still handed back, or the caller would wait for ever.
            self._free.put(index)
