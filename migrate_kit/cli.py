"""The command line: one verb a capability, over the same package as the notebooks."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import migrate_kit as mk
from migrate_kit import cli_weights
from migrate_kit.cli_text import (
    answer_lines,
    finding_lines,
    folded,
    one_line,
    operator_table,
    row_table,
)
from migrate_kit.environment.doctor_command import EXIT_CODES, examine
from migrate_kit.environment.terminal import print_anything
from migrate_kit.errors import MigrateError
from migrate_kit.results import plain

if TYPE_CHECKING:
    from migrate_kit.layers.store import Trace
    from migrate_kit.project import Project

DIFFERS, WRONG_USE, BROKEN = 1, 2, 3
# Written into a trace's folder beside its index, and found there again.
NOISE = "noise.json"
SHOWN = 10

app = typer.Typer(
    help="Walk a PyTorch model to other hardware, and see which layer differs and why.",
    no_args_is_help=True,
    add_completion=False,
    # A user's error is three lines; for anything else the plain traceback, whole, is of more use
    # in a report than a coloured one, and the values of locals may be the user's secrets.
    pretty_exceptions_enable=False,
)
app.add_typer(cli_weights.app)
ProjectPath = Annotated[
    Path | None,
    typer.Option("--project", "-p", help="A migration.toml or its folder; 'sample' is the sample."),
]


def _version(*, wanted: bool) -> None:
    if wanted:
        typer.echo(f"migrate-kit {mk.__version__}")
        raise typer.Exit


@app.callback()
def options(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", callback=lambda value: _version(wanted=value), is_eager=True),
    ] = False,
) -> None:
    """Take the options that belong to no verb."""
    del version


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
    for line in finding_lines(opened.findings):
        typer.echo(f"  {line}")
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
    noise: Annotated[
        bool,
        typer.Option(help="Also measure in float64 what rounding does, and keep it."),
    ] = True,
) -> None:
    """Run the project's model once and record every layer."""
    opened = mk.open_project(path)
    runner: Any = mk.OnnxRunner(onnx) if onnx else opened.model()
    trace = mk.capture(runner, *opened.inputs(), tensors=tensors, store=out)
    typer.echo(f"{trace!r} in {out}")
    if noise and onnx is None:
        typer.echo(_keep_noise(trace, out))


@app.command()
def compare(
    reference: Annotated[Path, typer.Argument(help="The trace that is right.")],
    candidate: Annotated[Path, typer.Argument(help="The trace to judge.")],
    noise: Annotated[
        Path | None,
        typer.Option(help=f"What rounding does to each layer; by default {NOISE} in REFERENCE."),
    ] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="List every layer.")] = False,
) -> None:
    """Compare two traces layer by layer.

    Exit code: 0 the same but for rounding, 1 they differ, 2 wrong use, 3 a fault of this program.
    """
    kept = reference / NOISE
    if noise is None and kept.is_file():
        noise = kept
    ours = mk.DumpRunner(reference).load()
    floor = None if noise is None else mk.NoiseFloor.from_file(noise)
    if floor is not None:
        floor.doubt(ours.records)  # a file may hold errors that no rounding makes
    diff = mk.compare(ours, mk.DumpRunner(candidate), noise=floor)
    typer.echo(repr(diff))
    if noise is not None:
        typer.echo(f"judged by the rounding measured in {noise}")
    else:
        typer.echo(f"no {NOISE} in {reference}: capture writes one where float64 can run")
    flagged = [row for row in diff.rows if row.verdict not in {"same", "unpaired"}]
    rows = diff.rows if every else flagged[:SHOWN]
    for line in row_table(rows):
        typer.echo(line)
    if not every and len(flagged) > SHOWN:
        typer.echo(f"{len(flagged) - SHOWN} more are flagged; --all lists every layer")
    for line in finding_lines(diff.findings):
        typer.echo(line)
    unpaired = sum(row.verdict == "unpaired" for row in diff.rows)
    if unpaired and not every:
        typer.echo(f"{unpaired} without a counterpart of their own; --all lists them and says why")
    if not diff.ok:
        raise typer.Exit(DIFFERS)


@app.command()
def rehearse(
    path: ProjectPath = None,
    target: Annotated[
        str | None, typer.Option(help="As ascend310p; by default the project's.")
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Write the operators to this file.")] = None,
    *,
    backward: Annotated[
        bool, typer.Option(help="Also the backward, of a mean of squares.")
    ] = False,
    numbers: Annotated[
        bool, typer.Option(help="Also run with that chip's arithmetic, against float64.")
    ] = True,
    every: Annotated[bool, typer.Option("--all", help="List every operator.")] = False,
) -> None:
    """Run the project's model as an NPU would that is not there.

    At a terminal long lines are folded; in a pipe each finding is one line.

    Exit code: 0 nothing is refused, 1 something is, 2 wrong use, 3 a fault of this program.
    """
    opened = mk.open_project(path, target=target)
    found = mk.rehearse(
        opened.model(),
        *opened.inputs(),
        target=opened.target,
        backward=backward,
        numbers=numbers,
        store=opened.store("rehearsal"),
    )
    said = finding_lines(found.findings)
    table = operator_table(found.rows) if every else []
    for line in folded([repr(found), *table, *said]):
        typer.echo(line)
    if csv is not None:
        typer.echo(f"wrote {found.to_csv(csv)}")
    if not found.ok:
        raise typer.Exit(DIFFERS)


@app.command(epilog=EXIT_CODES)
def doctor(
    target: Annotated[
        str | None,
        typer.Argument(help="What to judge for, as ascend910b, Ascend310P3, 'Atlas 800T A2'."),
    ] = None,
    facts: Annotated[
        Path | None, typer.Option(help="Judge what another machine's --save kept.")
    ] = None,
    save: Annotated[Path | None, typer.Option(help="Keep what was read here, as JSON.")] = None,
    kernel: Annotated[
        str | None, typer.Option(help="Write a Jupyter kernel of this name with the variables.")
    ] = None,
    env_script: Annotated[
        Path | None, typer.Option(help="Write a script that sets the variables.")
    ] = None,
    *,
    set_env: Annotated[
        list[Path] | None, typer.Option(help="A set_env.sh to take them from; may be repeated.")
    ] = None,
    rehearse: Annotated[
        bool, typer.Option("--rehearse", help="Exit 0 where it can only be rehearsed.")
    ] = False,
    probes: Annotated[bool, typer.Option(help="Try imports, each in its own process.")] = True,
    every: Annotated[bool, typer.Option("--all", help="List what is in order too.")] = False,
) -> None:
    """Examine this machine: is something wrong, and can the target run here."""
    code = examine(
        target,
        typer.echo,
        probes=probes,
        every=every,
        rehearse=rehearse,
        facts=facts,
        save=save,
        kernel=kernel,
        env_script=env_script,
        set_env=set_env or (),
    )
    if code:
        raise typer.Exit(code)


@app.command()
def explain(
    log: Annotated[Path, typer.Argument(help="A log file; - reads a message piped in.")],
    language: Annotated[str, typer.Option(help="en or zh.")] = "en",
) -> None:
    """Say what an error message or log means: echo "the message" | migrate-kit explain -.

    Exit code: 0 it is known, or only harmless warnings are in it, 1 it is not, 2 wrong use,
    3 a fault of this program.
    """
    from migrate_kit.environment.log_file import piped

    if str(log) == "-":
        with piped(getattr(sys.stdin, "buffer", None)) as kept:
            found = mk.explain(kept, language)
    else:
        found = mk.explain(log, language)
    for line in answer_lines(found):
        typer.echo(line)
    if found.unknown:
        raise typer.Exit(DIFFERS)


def main() -> None:
    """Run the command line; a user's error is three lines and exit code 2."""
    print_anything()
    try:
        app()
    except MigrateError as error:
        # Line by line: the three lines may quote a stranger's text.
        text = "\n".join(plain(line) for line in str(error).split("\n"))
        typer.echo(f"error: {text}", err=True)
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
        given = "; ".join(
            f"number {n} is {str(x.dtype).removeprefix('torch.')} {tuple(x.shape)}"
            for n, x in enumerate(inputs, 1)
        )
        raise MigrateError(
            f"the model does not run on these inputs: {type(error).__name__}: {one_line(error)}",
            f"{opened.source}, [[inputs]]: {given}",
            "give one input for each argument of forward(), in its shape and dtype",
        ) from error
    shape = tuple(output.shape) if isinstance(output, torch.Tensor) else type(output).__name__
    if isinstance(output, torch.Tensor) and opened.labels:
        return "; ".join(f"{label} {p:.2f}" for label, p in opened.top(output, 3))
    return f"output {shape}"


def _keep_noise(trace: Trace, folder: Path) -> str:
    try:
        floor = mk.noise_floor(trace)
    except MigrateError as error:
        return f"what rounding does could not be measured: {one_line(error.what)}"
    floor.to_file(folder / NOISE)
    return f"{floor!r} in {folder / NOISE}"


if __name__ == "__main__":
    main()
