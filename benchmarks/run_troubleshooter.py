"""What troubleshooter needs for the same checkpoint; run by an interpreter of its own.

``run_troubleshooter.py FILE WIDTH LAYERS``. Version 1.0.18 cannot be imported beside MindSpore 2.10
as it is: its ``migrator.api_dump``, which takes no part in converting weights, is left empty here.
"""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path

os.environ.setdefault("GLOG_v", "3")

from measure import answer, extra_memory, seconds

ROUNDS = 3


class Empty(types.ModuleType):
    """Stands for a package whose names are never used."""

    __all__: tuple[str, ...] = ()
    __path__: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


sys.modules["troubleshooter.migrator.api_dump"] = Empty("troubleshooter.migrator.api_dump")


def main(path: str, width: int, layers: int) -> None:
    """Convert, with its own map of names, and flush."""
    import torch
    import troubleshooter

    with torch.device("meta"):
        net = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(layers)))
    names = troubleshooter.migrator.get_weight_map(pt_net=net)
    out = Path(path).with_name("peer.ckpt")

    def convert() -> None:
        troubleshooter.migrator.convert_weight(
            weight_map=names,
            pt_file_path=path,
            ms_file_save_path=str(out),
            print_conv_info=False,
            print_save_path=False,
        )
        handle = os.open(out, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    taken = []
    for _ in range(ROUNDS):
        taken.append(seconds(convert))
        out.unlink()
    answer({"seconds": min(taken), "memory": extra_memory(convert, out.unlink)})


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
