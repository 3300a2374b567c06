"""The verbs about files of weights: what is in one, why it does not fit, what becomes of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import migrate_kit as mk
from migrate_kit.checkpoints.convert import NETWORKS
from migrate_kit.cli_text import finding_lines, pairing_table, tensor_table
from migrate_kit.errors import MigrateError, meant

if TYPE_CHECKING:
    from migrate_kit.checkpoints.state import StateDict

NOT_AS_IT_IS = 1
SHOWN = 10

app = typer.Typer(pretty_exceptions_enable=False)
Out = Annotated[Path | None, typer.Option(help="Write a state_dict, and nothing else, there.")]
# Not from checkpoints.write, which imports torch; a test holds them together.
FORMATS = ("safetensors", "torch", "torch-legacy", "mindspore")
Form = Annotated[str, typer.Option("--format", help=f"Of --out: {', '.join(FORMATS)}.")]


@app.command()
def checkpoint(
    file: Annotated[Path, typer.Argument(help="Weights, or the index or folder of shards.")],
    out: Out = None,
    form: Form = "safetensors",
    part: Annotated[
        str | None, typer.Option(help="Another set of tensors in the file, as ema.")
    ] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="List every tensor.")] = False,
) -> None:
    """Say what a file of weights holds, whatever wrote it; nothing in it is run."""
    found = mk.load_checkpoint(file)
    state = _part(found.parts, part, file) if part else found.state_dict
    typer.echo(repr(found))
    for line in finding_lines(found.findings):
        typer.echo(line)
    entries = list(state.entries.items())
    for line in tensor_table(entries if every else entries[:SHOWN]):
        typer.echo(line)
    if not every and len(entries) > SHOWN:
        typer.echo(f"{len(entries) - SHOWN} more; --all lists every tensor")
    if out is not None:
        typer.echo(f"wrote {mk.write_state_dict(state, out, form)}")


@app.command()
def diagnose(
    file: Annotated[
        Path | None, typer.Argument(help="Weights; by default those of the project.")
    ] = None,
    path: Annotated[
        Path | None, typer.Option("--project", "-p", help="Whose model; a migration.toml.")
    ] = None,
    out: Out = None,
    form: Form = "torch",
    *,
    every: Annotated[bool, typer.Option("--all", help="List every name.")] = False,
) -> None:
    """Say why weights do not fit the project's model, and repair them.

    Exit code: 0 they load as they are, 1 they do not, 2 wrong use, 3 a fault of this program.
    """
    opened = mk.open_project(path)
    weights = file or opened.weights
    if weights is None:
        raise MigrateError(
            "the project names no weights",
            opened.source,
            "name the file: migrate-kit diagnose FILE",
        )
    found = mk.diagnose(opened.model(weights=False), weights, *opened.inputs())
    typer.echo(repr(found))
    for line in finding_lines(found.findings):
        typer.echo(line)
    flagged = [row for row in found.rows if row.status != "same name"]
    for line in pairing_table(found.rows if every else flagged[:SHOWN]):
        typer.echo(line)
    if not every and len(flagged) > SHOWN:
        typer.echo(
            f"{len(flagged) - SHOWN} more do not load under their name; --all lists every one"
        )
    if out is not None:
        typer.echo(f"wrote {mk.write_state_dict(found.repair(), out, form)}")
    if found.error:
        raise typer.Exit(NOT_AS_IT_IS)


@app.command()
def convert(
    network: Annotated[str, typer.Argument(help=f"One of {', '.join(NETWORKS)}.")],
    files: Annotated[list[Path], typer.Argument(help="The original; three files for mtcnn.")],
    out: Annotated[Path, typer.Option(help="The .pth to write; a folder for mtcnn.")],
    cfg: Annotated[
        Path | None, typer.Option(help="Darknet's .cfg; by default the one beside the weights.")
    ] = None,
) -> None:
    """Convert published weights to a state_dict that Cambricon's torch reads, and prove it.

    Exit code: 0 every comparison agrees, 1 one does not, 2 wrong use, 3 a fault of this program.
    """
    found = mk.convert_weights(network, files if len(files) > 1 else files[0], out, cfg)
    typer.echo(repr(found))
    for proof in found.proof:
        typer.echo(str(proof))
    for line in finding_lines(found.findings):
        typer.echo(line)
    if not found.ok:
        raise typer.Exit(NOT_AS_IT_IS)


def _part(parts: dict[str, StateDict], name: str, file: Path) -> StateDict:
    if name not in parts:
        known = f"it has {', '.join(parts)}" if parts else "it has only the one"
        raise MigrateError(
            f"no set of tensors {name!r}{meant(name, parts)}", str(file), f"--part: {known}"
        )
    return parts[name]
