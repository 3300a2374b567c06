"""JupyterLab, but for its own words on how to reach it: lab.py says that, once.

Everything else that JupyterLab reports goes through, errors above all.
"""

from __future__ import annotations

import logging
import re
import sys

# The sentence around it is translated to the reader's language; the address is not.
ADDRESS = re.compile(r"\bhttps?://")


def is_not_the_address(record: logging.LogRecord) -> bool:
    """Say whether a record is anything but the message that ``ServerApp.start_app`` ends with."""
    return not (
        record.levelno == logging.CRITICAL
        and record.funcName == "start_app"
        and ADDRESS.search(record.getMessage())
    )


def main() -> int:
    """Run JupyterLab with this command's arguments."""
    from jupyterlab.labapp import LabApp  # type: ignore[import-untyped]

    # Configuring the log changes a logger's handlers and level; its filters stay.
    logging.getLogger("ServerApp").addFilter(is_not_the_address)
    LabApp.launch_instance()
    return 0


if __name__ == "__main__":
    sys.exit(main())
