"""What was found in a file of weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from migrate_kit.checkpoints.state import dtypes_text, size_text
from migrate_kit.results import Finding, Result, counted, few, findings_html, plain, table_html

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from migrate_kit.checkpoints.state import Contents, StateDict

_SHOWN = 12


class Checkpoint(Result):
    """What :func:`migrate_kit.load_checkpoint` found; its tensors are read when asked for.

    Attributes
    ----------
    path : Path
    format : str
        How the file is written: ``torch zip``, ``safetensors``, ``Darknet weights`` ...
    kind : str
        What it holds: ``state_dict``, ``training checkpoint``, ``whole module`` ...
    state_dict : StateDict
        The network's tensors under the names they have in the file.
    extras : dict of str to str
        What else is in the file, in words.
    wanted : list of str
        Code that the file asks for beyond tensors. None of it was run, unless ``trust=True``.
    inside : tuple of str
        The way to them in what was saved, as ``("state_dict",)``.
    parts : dict of str to StateDict
        Other sets of tensors in the file, such as an EMA, by their place.
    object : object
        With ``trust=True``, what unpickling with its code gave; None without.
    """

    def __init__(self, path: Path, contents: Contents) -> None:
        self.path = path
        self.format, self.kind = contents.format, contents.kind
        self.state_dict: StateDict = contents.state_dict
        self.extras, self.wanted = contents.extras, contents.wanted
        self.parts, self.inside = contents.parts, contents.inside
        self.object: Any = None
        self.findings: list[Finding] = contents.findings

    def save(self, project: Any, name: str | None = None) -> Any:
        """Add what was found to the project's results, by default as ``checkpoint``."""
        return super().save(project, name or "checkpoint")

    def to_dict(self) -> dict[str, Any]:
        """Return what a project keeps: what it is, and no tensor."""
        return super().to_dict() | {
            "kind": "checkpoint",
            "file": self.path.name,
            "format": self.format,
            "holds": self.kind,
            "tensors": len(self.state_dict),
            "bytes": self.state_dict.nbytes,
            "extras": {plain(k): plain(v) for k, v in self.extras.items()},
            "wanted": [plain(name) for name in self.wanted],
        }

    def to_frame(self) -> pd.DataFrame:
        """Return one line a tensor: name, shape, dtype, bytes; no tensor is read."""
        import pandas as pd

        rows = [
            (name, e.shape, str(e.dtype).removeprefix("torch."), e.nbytes)
            for name, e in self.state_dict.entries.items()
        ]
        return pd.DataFrame(rows, columns=["name", "shape", "dtype", "bytes"])

    def __repr__(self) -> str:
        errors = [f.what for f in self.findings if f.level == "error"]
        problem = f"{errors[0]}; " if errors else ""
        entries = self.state_dict.entries.values()
        held = f"{counted(len(self.state_dict), 'tensor')}, {size_text(self.state_dict.nbytes)}"
        dtypes = f", {dtypes_text(entries)}" if entries else ""
        extras = f"; also {few(self.extras, 6)}" if self.extras else ""
        return f"Checkpoint({problem}{self.kind}, {self.format}: {held}{dtypes}{extras})"

    def _html(self) -> str:
        entries = self.state_dict.entries
        rows = [
            ("file", plain(self.path.name)),
            ("format", self.format),
            ("holds", self.kind),
            ("tensors", f"{len(entries)}, {size_text(self.state_dict.nbytes)}"),
            ("dtypes", dtypes_text(entries.values())),
            *((f"also: {plain(k)}", plain(v)) for k, v in self.extras.items()),
        ]
        some = f"the first {_SHOWN} of " if len(entries) > _SHOWN else ""
        tensors = [
            (plain(name), str(e.shape), str(e.dtype).removeprefix("torch."))
            for name, e in list(entries.items())[:_SHOWN]
        ]
        return (
            table_html("Checkpoint", ("what", "value"), rows)
            + findings_html(self.findings)
            + table_html(
                f"{some}{counted(len(entries), 'tensor')}", ("name", "shape", "dtype"), tensors
            )
        )
