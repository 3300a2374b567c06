"""The verbs about files of weights: what is in one, why it does not fit, what becomes of it."""

from __future__ import annotations

from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import migrate_kit as mk
from migrate_kit.checkpoints.convert import NETWORKS
from migrate_kit.cli_text import finding_lines, pairing_table, spoken, tensor_table
from migrate_kit.errors import MigrateError, meant
from migrate_kit.results import plain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from migrate_kit.checkpoints.state import StateDict
    from migrate_kit.project import Project
    from migrate_kit.results import Finding

NOT_AS_IT_IS = 1
SHOWN = 10

app = typer.Typer(pretty_exceptions_enable=False)
Out = Annotated[Path | None, typer.Option(help="Write a state_dict, and nothing else, there.")]
# Not from checkpoints.write, which imports torch; a test holds them together.
FORMATS = ("safetensors", "torch", "torch-legacy", "mindspore")
Form = Annotated[
    str | None,
    typer.Option(
        "--format", help=f"Of --out: {', '.join(FORMATS)}. By default what its suffix says."
    ),
]
Part = Annotated[str | None, typer.Option(help="Another set of tensors in the file, as ema.")]


class Keep(StrEnum):
    """What to do where the weights have nothing that fits."""

    error = "error"
    keep = "keep"


class Positions(StrEnum):
    """What to do with a position embedding of another grid."""

    error = "error"
    resize = "resize"
    keep = "keep"


class Order(StrEnum):
    """What to do with layers that nothing tells apart."""

    check = "check"
    trust = "trust"


@app.command()
def checkpoint(
    file: Annotated[Path, typer.Argument(help="Weights, or the index or folder of shards.")],
    out: Out = None,
    form: Form = None,
    part: Part = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="List every tensor.")] = False,
) -> None:
    """Say what a file of weights holds, whatever wrote it; nothing in it is run."""
    with _spoken():
        _checked(out, form)
        found = mk.load_checkpoint(file)
        state = _part(found.parts, part, file) if part else found.state_dict
    typer.echo(repr(found))
    _say(found.findings)
    entries = list(state.entries.items())
    for line in tensor_table(entries if every else entries[:SHOWN]):
        typer.echo(line)
    if not every and len(entries) > SHOWN:
        typer.echo(f"{len(entries) - SHOWN} more; --all lists every tensor")
    _write(state, out, form)


@app.command()
def diagnose(  # noqa: PLR0917 - each is an option
    file: Annotated[
        Path | None, typer.Argument(help="Weights; by default those of the project.")
    ] = None,
    path: Annotated[
        Path | None, typer.Option("--project", "-p", help="Whose model; a migration.toml.")
    ] = None,
    out: Out = None,
    form: Form = None,
    part: Part = None,
    head: Annotated[Keep, typer.Option(help="A last layer of other classes: the model's.")] = (
        Keep.error
    ),
    positions: Annotated[Positions, typer.Option(help="Position embeddings of another grid.")] = (
        Positions.error
    ),
    missing: Annotated[Keep, typer.Option(help="What has nothing that fits: the model's.")] = (
        Keep.error
    ),
    order: Annotated[Order, typer.Option(help="Layers that nothing tells apart.")] = Order.check,
    *,
    every: Annotated[bool, typer.Option("--all", help="List every name.")] = False,
) -> None:
    """Say why weights do not fit the project's model, and repair them.

    Exit code: 0 they load as they are, 1 they do not, 2 wrong use, 3 a fault of this program.
    """
    _checked(out, form)
    opened = mk.open_project(path)
    typer.echo(_whose(opened))
    weights = file or opened.weights
    if weights is None:
        raise MigrateError(
            "the project names no weights",
            opened.source,
            "name the file: migrate-kit diagnose FILE",
        )
    with _spoken():
        given: Any = weights
        if part:
            given = _part(mk.load_checkpoint(weights).parts, part, weights)
        found = mk.diagnose(opened.model(weights=False), given, *opened.inputs())
    typer.echo(spoken(repr(found)))
    _say(found.findings)
    flagged = [row for row in found.rows if row.status != "same name"]
    for line in pairing_table(found.rows if every else flagged[:SHOWN]):
        typer.echo(line)
    if not every and len(flagged) > SHOWN:
        typer.echo(
            f"{len(flagged) - SHOWN} more do not load under their name; --all lists every one"
        )
    if out is not None:
        with _spoken():
            fitting = found.repair(
                head=head.value, positions=positions.value, missing=missing.value, order=order.value
            )
        _write(fitting, out, form)
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
    with _spoken():
        found = mk.convert_weights(network, files if len(files) > 1 else files[0], out, cfg)
    typer.echo(repr(found))
    for proof in found.proof:
        typer.echo(str(proof))
    _say(found.findings)
    if not found.ok:
        raise typer.Exit(NOT_AS_IT_IS)


@contextmanager
def _spoken() -> Iterator[None]:
    """Say an error's advice as the command line has it."""
    try:
        yield
    except MigrateError as error:
        said = (spoken(text) for text in (error.what, error.where, error.fix))
        raise MigrateError(*said) from error


def _say(findings: Iterable[Finding]) -> None:
    for line in finding_lines(findings):
        typer.echo(spoken(line))


def _checked(out: Path | None, form: str | None) -> str:
    """Return the format that is written, and refuse a wrong one before any work."""
    if form is not None and form not in FORMATS:
        raise MigrateError(
            f"no format {form!r}{meant(form, FORMATS)}", "--format", f"one of {', '.join(FORMATS)}"
        )
    if out is None or form is not None:
        return form or ""
    from migrate_kit.checkpoints.write import format_of

    with _spoken():
        return format_of(out)


def _write(state: StateDict, out: Path | None, form: str | None) -> None:
    if out is not None:
        kind = _checked(out, form)
        with _spoken():
            typer.echo(f"wrote {mk.write_state_dict(state, out, kind)} ({kind})")


def _whose(opened: Project) -> str:
    why = "sample; no migration.toml found" if opened.is_sample else opened.source
    return plain(f"model: {opened.name} ({why})")


def _part(parts: dict[str, StateDict], name: str, file: Path) -> StateDict:
    if name not in parts:
        known = f"it has {', '.join(parts)}" if parts else "it has only the one"
        raise MigrateError(
            f"no set of tensors {name!r}{meant(name, parts)}", str(file), f"--part: {known}"
        )
    return parts[name]
