"""The command line: one verb a capability, over the same package as the notebooks."""

from __future__ import annotations

import math
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import migrate_kit as mk
from migrate_kit.errors import MigrateError

if TYPE_CHECKING:
    from migrate_kit.layers.rows import LayerRow
    from migrate_kit.project import Project

DIFFERS, WRONG_USE, BROKEN = 1, 2, 3

app = typer.Typer(
    help="Walk a PyTorch model to other hardware, and see which layer differs and why.",
    no_args_is_help=True,
    add_completion=False,
    # A user's error is three lines; for anything else the plain traceback, whole, is of more use
    # in a report than a coloured one, and the values of locals may be the user's secrets.
    pretty_exceptions_enable=False,
)
ProjectPath = Annotated[
    Path | None,
    typer.Option("--project", "-p", help="A migration.toml or its folder; 'sample' is the sample."),
]


@app.command()
def init(
    path: Annotated[Path, typer.Argument(help="The file, or the folder it goes to.")] = Path(),
) -> None:
    """Write a commented migration.toml to start from."""
    from migrate_kit.template import write_template

    typer.echo(f"wrote {write_template(path)}: edit it, then run: migrate-kit project")


@app.command()
def project(
    path: ProjectPath = None,
    *,
    run: Annotated[bool, typer.Option(help="Also build the model and run it once.")] = True,
) -> None:
    """Say which project is open here, and whether its model runs."""
    opened = mk.open_project(path)
    typer.echo(repr(opened))
    for what, value in opened.describe():
        typer.echo(f"  {what:<12} {value}")
    typer.echo(f"  {'results':<12} {', '.join(opened.results) or 'none yet'}")
    for finding in opened.findings:
        typer.echo(f"  {finding.level}: {finding.what} ({finding.where})")
    if run:
        typer.echo(f"  {'runs':<12} {_run(opened)}")


@app.command()
def capture(
    out: Annotated[Path, typer.Argument(help="The folder that the trace goes to.")],
    path: ProjectPath = None,
    onnx: Annotated[
        Path | None, typer.Option(help="Capture this ONNX file on the project's inputs instead.")
    ] = None,
    *,
    tensors: Annotated[bool, typer.Option(help="Keep every tensor, not only statistics.")] = True,
) -> None:
    """Run the project's model once and record every layer."""
    opened = mk.open_project(path)
    runner: Any = mk.OnnxRunner(onnx) if onnx else opened.model()
    trace = mk.capture(runner, *opened.inputs(), tensors=tensors, store=out)
    typer.echo(f"{trace!r} in {out}")


@app.command()
def compare(
    reference: Annotated[Path, typer.Argument(help="The trace that is right.")],
    candidate: Annotated[Path, typer.Argument(help="The trace to judge.")],
    *,
    every: Annotated[bool, typer.Option("--all", help="List every layer.")] = False,
) -> None:
    """Compare two traces layer by layer; exit code 1 when they differ."""
    diff = mk.compare(mk.DumpRunner(reference), mk.DumpRunner(candidate))
    typer.echo(repr(diff))
    rows = [row for row in diff.rows if every or row.verdict not in {"same", "unpaired"}]
    for line in _table(rows):
        typer.echo(line)
    unpaired = sum(row.verdict == "unpaired" for row in diff.rows)
    if unpaired and not every:
        typer.echo(f"{unpaired} without a counterpart of their own; --all lists them and says why")
    if not diff.ok:
        raise typer.Exit(DIFFERS)


def main() -> None:
    """Run the command line; a user's error is three lines and exit code 2."""
    try:
        app()
    except MigrateError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(WRONG_USE)
    except Exception:  # noqa: BLE001 - Python's own exit code, 1, already means "they differ"
        traceback.print_exc()
        sys.exit(BROKEN)


def _run(opened: Project) -> str:
    import torch

    model, inputs = opened.model(), opened.inputs()
    try:
        with torch.no_grad():
            output = model(*inputs)
    except Exception as error:
        raise MigrateError(
            f"the model does not run on these inputs: {type(error).__name__}: {error}",
            "[[inputs]]",
            "give one input for each argument of forward(), in its shape and dtype",
        ) from error
    shape = tuple(output.shape) if isinstance(output, torch.Tensor) else type(output).__name__
    if isinstance(output, torch.Tensor) and opened.labels:
        return "; ".join(f"{label} {p:.2f}" for label, p in opened.top(output, 3))
    return f"output {shape}"


def _table(rows: list[LayerRow]) -> list[str]:
    if not rows:
        return []
    cells = [("layer", "channel", "verdict", "R", "max abs", "origin", "note")]
    # A layer's name comes from a stranger: no line breaks, no terminal control.
    cells += [
        (
            _plain(row.layer or row.candidate),
            row.channel,
            row.verdict,
            _number(row.R),
            _number(row.max_abs),
            row.origin,
            _plain(row.note),
        )
        for row in rows
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3g}"


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else "�" for c in text)


if __name__ == "__main__":
    main()
