"""What a diagnosis found, and the repair that follows from it."""

from __future__ import annotations

import html
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from migrate_kit.checkpoints.advice import advice, repair_line
from migrate_kit.checkpoints.load_rows import LOADED, LoadRow, rows_of
from migrate_kit.checkpoints.recipe import one_line, script
from migrate_kit.checkpoints.repair import Allowed, on_trial, plan, repaired
from migrate_kit.checkpoints.structure import BY_ORDER
from migrate_kit.errors import MigrateError
from migrate_kit.results import Finding, Result, findings_html, plain, table_html

if TYPE_CHECKING:
    import pandas as pd
    import torch

    from migrate_kit.checkpoints.fit import Fit
    from migrate_kit.checkpoints.proof import Trial
    from migrate_kit.checkpoints.sides import Piece
    from migrate_kit.checkpoints.state import StateDict
    from migrate_kit.checkpoints.taken import Taken
    from migrate_kit.layers.compare import LayerDiff

_SHOWN = 12
_PROBLEMS = ("shape differs", "ambiguous", "missing", "unexpected")
_CHANGES = ("renamed", "made", "dtype differs", "kept", "left out")


class LoadReport(Result):
    """What :func:`migrate_kit.diagnose` found.

    Attributes
    ----------
    rows : list of LoadRow
        One for every place of the model, in its order; then the checkpoint's tensors without one.
    error : str
        What ``load_state_dict(strict=True)`` says of the checkpoint as it is; empty if it loads.
    mapping : dict of str to str or tuple of str
        The name in the model, and the name in the checkpoint; several where a value is made of
        several.
    matched, missing, mismatched, ambiguous, kept : list of str
        Names in the model: what gets its value from the checkpoint; what gets none; what has
        another shape or dtype there; what cannot be told apart; what keeps the model's own value.
    unexpected, left_out : list of str
        Names in the checkpoint that go nowhere, without and with a known reason.
    proof : LayerDiff or None
        The repaired model against the original network, where one was given.
    """

    kind = "load report"

    def __init__(
        self,
        model: torch.nn.Module,
        fit: Fit,
        trial: Trial,
        taken: Taken,
    ) -> None:
        self.model_name = type(model).__name__
        state = taken.state
        self._fit, self._state, self._trial, self._taken = fit, state, trial, taken
        self._metadata = getattr(model.state_dict(), "_metadata", None)
        self.error = trial(fit.as_is(state))
        self._as_it_is = not self.error and _renames_itself(fit, state)
        self.rows: list[LoadRow] = rows_of(fit)
        self.proof: LayerDiff | None = None
        self._line = one_line(fit, state, trial) if self.error else ""
        self._allowed = self._smallest()
        cure = self._line
        if not cure and self._allowed is not None and self.error:
            cure = repair_line(self._allowed.code())
        self.findings: list[Finding] = advice(fit, self.rows, self.error, cure)

    def _smallest(self) -> Allowed | None:
        """Return the least that a repair must be allowed to do; None where that does not help."""
        arguments = {c.argument for c in self._fit.clashes.values()}
        allowed = Allowed(
            head="keep" if "head" in arguments else "error",
            positions="resize" if "positions" in arguments else "error",
        )
        placed, _, problems = plan(self._fit, allowed)
        as_is = not self.error and all(r.status == "same name" for r in self.rows)
        if not problems and (as_is or self._line):
            return allowed  # that was tried already
        if problems or self._trial(on_trial(self._fit, placed, self._state)):
            return None
        return allowed

    @property
    def mapping(self) -> dict[str, str | tuple[str, ...]]:
        """Name in the model to name in the checkpoint."""
        pairs = self._fit.pairs.items()
        return {
            n: p.piece.sources[0] if len(p.piece.sources) == 1 else p.piece.sources
            for n, p in pairs
        }

    @property
    def matched(self) -> list[str]:
        """Names in the model that get their value from the checkpoint."""
        return self._keys(*LOADED)

    @property
    def missing(self) -> list[str]:
        """Names in the model that nothing in the checkpoint fits."""
        return self._keys("missing")

    @property
    def mismatched(self) -> list[str]:
        """Names in the model whose tensor in the checkpoint has another shape or dtype."""
        return self._keys("shape differs", "dtype differs")

    @property
    def ambiguous(self) -> list[str]:
        """Names in the model for which several tensors could be meant."""
        return self._keys("ambiguous")

    @property
    def kept(self) -> list[str]:
        """Names in the model whose value stays."""
        return self._keys("kept")

    @property
    def unexpected(self) -> list[str]:
        """Names in the checkpoint that the model has no place for."""
        return self._sources("unexpected")

    @property
    def left_out(self) -> list[str]:
        """Names in the checkpoint that are not needed."""
        return self._sources("left out")

    def _keys(self, *statuses: str) -> list[str]:
        return [r.key for r in self.rows if r.key and r.status in statuses]

    def _sources(self, status: str) -> list[str]:
        return [r.source for r in self.rows if not r.key and r.status == status and r.source]

    def repair(
        self,
        *,
        head: Literal["error", "keep"] = "error",
        positions: Literal["error", "resize", "keep"] = "error",
        missing: Literal["error", "keep"] = "error",
        order: Literal["check", "trust"] = "check",
        proof: Literal["check", "ignore"] = "check",
    ) -> StateDict:
        """Return a state_dict that loads strictly; what is done to its tensors stands in the rows.

        Parameters
        ----------
        head : {"error", "keep"}
            A last layer of another number of classes: refuse, or keep the model's own.
        positions : {"error", "resize", "keep"}
            A position embedding of another grid: refuse, resize it bicubically with antialias as
            timm does, or keep the model's own.
        missing : {"error", "keep"}
            Places for which the checkpoint has nothing that fits: refuse, or keep the model's own
            values, which are random in a new model.
        order : {"check", "trust"}
            Layers that nothing tells apart: refuse, or trust that the file lists them as the model
            does.
        proof : {"check", "ignore"}
            Where the comparison with the original network failed: refuse, or repair all the same,
            such as when the two networks have other settings.

        Raises
        ------
        MigrateError
            If a place would be left without a value; it names them, and what would help.
        """
        allowed = Allowed(head, positions, missing, order, proof)
        wrong = None if self.proof is None else self.proof.first_divergence
        if wrong is not None and proof == "check":
            raise MigrateError(
                f"with these weights the model computes something else than the original, from"
                f" {wrong.candidate!r} on",
                "repair()",
                'see report.proof; if only settings differ (eps, padding): repair(proof="ignore")',
            )
        if self._as_it_is:
            return self._state
        return repaired(self._fit, self._state, self._metadata, self._trial, allowed)

    def placed(self) -> dict[str, Piece] | None:
        """Return what the least repair puts where; None where none was found."""
        return None if self._allowed is None else plan(self._fit, self._allowed)[0]

    def code(self) -> str:
        """Return the repair as a script to copy out, which needs no migrate_kit if it only renames.

        Where no repair was found, it is empty.
        """
        placed = self.placed()
        if placed is None or self._allowed is None:
            return ""
        return script(self._fit, placed, self._taken, self._line, self._allowed)

    def show(self) -> Any:
        """Return the live view: both lists of names side by side."""
        from migrate_kit.widgets.pairing import PairingWidget

        return PairingWidget(self)

    def as_page(self, path: str | Path | None = None) -> Any:
        """Return the live view as one page that needs no kernel, or write it to ``path``.

        Raises
        ------
        MigrateError
            If ``path`` cannot be written.
        """
        from migrate_kit.widgets import pairing

        return pairing.as_page(self) if path is None else pairing.write_page(self, Path(path))

    def to_frame(self) -> pd.DataFrame:
        """Return one line a row, every field of LoadRow."""
        import pandas as pd

        return pd.DataFrame([asdict(r) for r in self.rows], columns=list(LoadRow.__annotations__))

    def to_dict(self) -> dict[str, Any]:
        """Return what a project keeps: the counts, and the rows that are no plain match."""
        flagged = [asdict(r) for r in self.rows if r.status != "same name"]
        return super().to_dict() | {
            "model": self.model_name,
            "error": self.error,
            "statuses": dict(self._counts()),
            "flagged": flagged[:200],
        }

    def _counts(self) -> Counter[str]:
        return Counter(r.status for r in self.rows)

    def __repr__(self) -> str:
        counts = self._counts()
        own = sum(bool(r.key) for r in self.rows)
        problems = [f"{counts[s]} {s}" for s in _PROBLEMS if counts[s]]
        by_order = sum(BY_ORDER in r.rule.split("; ") for r in self.rows)
        if by_order:
            problems.append(f"{by_order} by order alone")
        changes = [f"{counts[s]} {s}" for s in _CHANGES if counts[s]]
        if not self.error:
            verdict = "loads as it is" if self.ok else "loads, but see the findings"
        elif self._allowed is None:
            verdict = "does not load, and no repair was found"
        else:
            arguments = self._allowed.code()
            verdict = f"does not load as it is; repair({arguments}) does"
        said = ", ".join([f"{len(self.matched)} of {own} places filled", *problems, *changes])
        return f"LoadReport({verdict}: {said})"

    def _html(self) -> str:
        parts = [f"<p>{html.escape(repr(self))}</p>", findings_html(self.findings)]
        head = ("model", "shape", "checkpoint", "shape", "rule", "reason")
        for status in (*_PROBLEMS, *_CHANGES):
            rows = [r for r in self.rows if r.status == status]
            if rows:
                some = f"; the first {_SHOWN}" if len(rows) > _SHOWN else ""
                shown = [_cells(r) for r in rows[:_SHOWN]]
                parts.append(table_html(f"{status}: {len(rows)}{some}", head, shown))
        return "".join(parts)


def _renames_itself(fit: Fit, state: StateDict) -> bool:
    """See a model that takes other names than it gives, and say so of those names."""
    if not fit.lacking or any(name in state for name in fit.lacking):
        return False
    fit.kept |= dict.fromkeys(fit.lacking, "the model fills it itself when it loads")
    fit.left_out |= dict.fromkeys(fit.unexpected, "the model takes it by another name of its own")
    fit.lacking, fit.unexpected = {}, {}
    return True


def _cells(row: LoadRow) -> tuple[str, ...]:
    return (
        _short(row.key),
        _shape(row.shape),
        _short(row.source or ""),
        _shape(row.source_shape),
        _short(row.rule),
        _short(row.reason, 200),
    )


def _shape(shape: tuple[int, ...] | None) -> str:
    return "" if shape is None else " × ".join(map(str, shape)) or "one number"


def _short(text: str, most: int = 100) -> str:
    text = plain(text)
    return text if len(text) <= most else f"{text[: most - 4]} ..."
