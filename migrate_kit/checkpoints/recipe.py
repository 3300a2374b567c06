"""A repair as code to copy out: it stands alone where renaming is all there is to do."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from migrate_kit.checkpoints.proof import without_memory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from migrate_kit.checkpoints.fit import Fit
    from migrate_kit.checkpoints.proof import Trial
    from migrate_kit.checkpoints.repair import Allowed
    from migrate_kit.checkpoints.rules.wrappers import Renaming
    from migrate_kit.checkpoints.sides import Piece
    from migrate_kit.checkpoints.state import StateDict
    from migrate_kit.checkpoints.taken import Taken


def one_line(fit: Fit, state: StateDict, trial: Trial) -> str:
    """Return the line that loads the checkpoint by renaming; empty where that does not load.

    It is tried: on names, shapes and dtypes.
    """
    said = {s: n for n, p in fit.pairs.items() for s in p.piece.sources}
    if not fit.renamings:
        return ""
    named: OrderedDict[str, object] = OrderedDict()
    for name, entry in state.entries.items():
        new = name
        for renaming in fit.renamings:
            new = renaming.apply(new)
        if said.get(name, new) != new:
            return ""  # other evidence than its name decided
        named[new] = without_memory(entry)
    inner = fit.renamings[0].new.removesuffix(".")
    if len(fit.renamings) == 1 and fit.renamings[0].added and inner in ("module", "_orig_mod"):
        return "" if trial(named) else f"model.{inner}.load_state_dict(state)"
    code = _name_code(fit.renamings)
    if code is None or len(named) < len(state) or trial(named):
        return ""
    return f"model.load_state_dict({{{code}: v for k, v in state.items()}})"


def script(fit: Fit, placed: dict[str, Piece], taken: Taken, line: str, allowed: Allowed) -> str:
    """Return a few lines from the file to the loaded model."""
    way = "".join(f"[{key!r}]" for key in taken.inside)
    head = "import torch"
    load = f'state = torch.load(path, map_location="cpu", weights_only=True){way}'
    if not taken.bare:
        which = f"parts[{taken.part!r}]" if taken.part else "state_dict"
        head, load = "import migrate_kit as mk", f"state = mk.load_checkpoint(path).{which}"
    plain = all(p.make is None for p in placed.values()) and len(placed) == len(fit.slots)
    if line:
        return f"{head}\n\n{load}\n{line}\n"
    if not plain:
        call = f"mk.diagnose(model, path).repair({allowed.code()})"
        return f"import migrate_kit as mk\n\nmodel.load_state_dict({call})\n"
    names = "".join(f"    {n!r}: {p.sources[0]!r},\n" for n, p in placed.items())
    return (
        f"{head}\n\n# name in the model: name in the checkpoint\nnames = {{\n{names}}}\n"
        f"{load}\nmodel.load_state_dict({{k: state[name] for k, name in names.items()}})\n"
    )


def _name_code(renamings: Sequence[Renaming]) -> str | None:
    code: str | None = "k"
    for renaming in renamings:
        code = None if code is None else renaming.code(code)
    return code
