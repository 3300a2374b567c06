"""A PyTorch checkpoint as a MindSpore one, and back; neither needs MindSpore."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from migrate_kit.checkpoints.formats.mindspore_ckpt import optimizer_names
from migrate_kit.checkpoints.load import load_checkpoint
from migrate_kit.checkpoints.state import Entry, StateDict
from migrate_kit.checkpoints.write import write_state_dict
from migrate_kit.errors import MigrateError, meant
from migrate_kit.porting.renaming import to_mindspore, to_torch
from migrate_kit.porting.rules import backward
from migrate_kit.porting.streamed import Tally, float_type, streamed
from migrate_kit.porting.written_checkpoint import Row, WrittenCheckpoint
from migrate_kit.results import Finding, counted, few

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch
    from torch import nn

    from migrate_kit.porting.renaming import Renamed

_FORMATS = {"ckpt": "mindspore", "safetensors": "safetensors"}
# MindSpore 2.10 refuses the whole file for one such tensor (measured).
_UNREADABLE = ("complex", "float8", "quint", "qint", "bits", "float4")


def to_mindspore_checkpoint(
    state_dict: Mapping[str, torch.Tensor] | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    names: Mapping[str, str | None] | None = None,
    model: nn.Module | None = None,
    dtype: torch.dtype | str | None = None,
    format: str | None = None,  # noqa: A002
) -> WrittenCheckpoint:
    """Write a PyTorch checkpoint as MindSpore's ``.ckpt`` or safetensors, under MindSpore's names.

    The values go from file to file one tensor at a time; MindSpore need not be installed.

    Parameters
    ----------
    state_dict : mapping of str to Tensor, or path
        What :func:`migrate_kit.load_checkpoint` loads; of a training checkpoint, the network.
    out : path
        Replaced when all is written; the old file stays whole if something fails.
    names : mapping of str to str or None, optional
        MindSpore's names for some of the tensors; None leaves one out. The rest goes by the rules.
    model : torch.nn.Module, optional
        Its layers' types tell what names do not: LayerNorm, Embedding, PReLU, Conv1d. It may be
        on the meta device.
    dtype : torch.dtype or str, optional
        For the floating-point tensors, such as ``"bf16"``; integers stay.
    format : {"ckpt", "safetensors"}, optional
        By default what the suffix of ``out`` says.

    Returns
    -------
    WrittenCheckpoint
        ``.rows`` says what became of each tensor, ``.findings`` what could not be told, NaN,
        infinities and overflow. Tied weights are written under each name: a cell that ties them
        ignores the second, and one that does not needs it.

    Raises
    ------
    MigrateError
        If two tensors would have one name, MindSpore could not read one, or the file cannot be
        written.

    Examples
    --------
    >>> import pathlib, tempfile, torch
    >>> net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8))
    >>> out = pathlib.Path(tempfile.mkdtemp(), "net.ckpt")
    >>> written = to_mindspore_checkpoint(net.state_dict(), out, model=net)
    >>> written
    WrittenCheckpoint(net.ckpt: 6 tensors, float32 (6); 1 left out)
    >>> written.names["1.running_var"]
    '1.moving_variance'
    """
    path = Path(out)
    form, wanted = _format(path, format), float_type(dtype)
    state, findings = _state(state_dict)
    found = to_mindspore(state.entries, model, names)
    findings += found.findings
    tally, rows, entries, left_out = Tally(), [], {}, list(found.dropped)
    for move in found.renamed:
        entry = state.entries[move.torch_name]
        new = streamed(entry, move, wanted, tally)
        if 0 in new.shape and form == "ckpt":
            left_out.append(move.torch_name)
            continue
        _check(new, move)
        entries[move.name] = new
        rows.append(Row(*move, _name(entry.dtype), _name(new.dtype), new.shape))
    write_state_dict(StateDict(entries), path, _FORMATS[form])
    findings = [*tally.findings(wanted), *findings, *_tied(state, rows), *_empty(state, left_out)]
    return WrittenCheckpoint(path, form, rows, left_out, findings)


def to_state_dict(
    ckpt_path: str | os.PathLike[str], *, model: nn.Module | None = None
) -> StateDict:
    """Read a MindSpore checkpoint under PyTorch's names, without MindSpore.

    Parameters
    ----------
    ckpt_path : path
        A ``.ckpt`` or safetensors. What an optimizer left in it is not taken.
    model : torch.nn.Module, optional
        The network it is for, which may be on the meta device. Without it Conv1d's weights keep
        their four dimensions, and PReLU's and BatchNorm3d's their MindSpore names.

    Returns
    -------
    StateDict
        It goes into ``model.load_state_dict``; each tensor is read when asked for. MindSpore has
        no ``num_batches_tracked``; PyTorch does without it.

    Raises
    ------
    MigrateError
        If it is no checkpoint of MindSpore's, damaged, or of another network than ``model``.

    Examples
    --------
    >>> import pathlib, tempfile, torch
    >>> net = torch.nn.Sequential(torch.nn.Conv1d(3, 8, 3), torch.nn.BatchNorm1d(8))
    >>> out = pathlib.Path(tempfile.mkdtemp(), "net.ckpt")
    >>> _ = to_mindspore_checkpoint(net.state_dict(), out, model=net)
    >>> net.load_state_dict(to_state_dict(out, model=net))
    <All keys matched successfully>
    """
    checkpoint = load_checkpoint(ckpt_path)
    if checkpoint.format not in ("MindSpore ckpt", "safetensors"):
        raise MigrateError(
            f"no checkpoint of MindSpore's: {checkpoint.format}",
            str(checkpoint.path),
            "mk.load_checkpoint reads it",
        )
    for finding in checkpoint.findings:
        if finding.level == "error":
            raise MigrateError(finding.what, finding.where, finding.fix)
    # The reader of .ckpt sets these apart already, that of safetensors does not.
    state = set(optimizer_names(checkpoint.state_dict))
    entries = {n: e for n, e in checkpoint.state_dict.entries.items() if n not in state}
    return StateDict(
        {move.torch_name: _back(entries[move.name], move) for move in to_torch(entries, model)}
    )


def _back(entry: Entry, move: Renamed) -> Entry:
    if move.transform == "identity":
        return entry

    def read() -> torch.Tensor:
        tensor: torch.Tensor = backward(move.transform, entry.read())
        return tensor

    import torch

    shape = tuple(backward(move.transform, torch.empty(entry.shape, device="meta")).shape)
    return Entry(shape, entry.dtype, read, entry.memory)


def _state(
    source: Mapping[str, torch.Tensor] | str | os.PathLike[str],
) -> tuple[StateDict, list[Finding]]:
    if isinstance(source, str | os.PathLike):
        checkpoint = load_checkpoint(source)
        state, findings = checkpoint.state_dict, list(checkpoint.findings)
    else:
        state, findings = StateDict.of(source), []
        lost = [name for name in source if name not in state]
        if lost:
            what = f"{counted(len(lost), 'value')} not taken: no tensor"
            findings.append(Finding("warning", what, few(lost), "give the state_dict alone"))
    if not state:
        raise MigrateError(
            "no tensor to write",
            "state_dict",
            'give the state_dict: of a checkpoint, ["state_dict"]',
        )
    return state, findings


def _format(path: Path, given: str | None) -> str:
    form = path.suffix.removeprefix(".") if given is None else given
    if form not in _FORMATS:
        raise MigrateError(
            f"no format {form!r}{meant(form, _FORMATS)}",
            "format=" if given else str(path),
            "end the name in .ckpt or .safetensors",
        )
    if path.suffix != f".{form}":
        raise MigrateError(
            f"MindSpore loads no {form} whose name does not end in .{form}",
            str(path),
            f"call it {path.name}.{form}",
        )
    return form


def _check(entry: Entry, move: Renamed) -> None:
    if _name(entry.dtype).startswith(_UNREADABLE):
        raise MigrateError(
            f"MindSpore reads no {_name(entry.dtype)}",
            few([move.torch_name]),
            'convert it with dtype="fp32", or leave it out: names={name: None}',
        )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _tied(state: StateDict, rows: list[Row]) -> list[Finding]:
    """Say which weights are one memory in the source and two in the file."""
    first: dict[object, str] = {}
    again = []
    for row in rows:
        memory = state.entries[row.torch_name].memory
        if memory is not None and first.setdefault(memory, row.torch_name) != row.torch_name:
            again.append(row.torch_name)
    if not again:
        return []
    what = f"{counted(len(again), 'tied weight')} written again, under each name"
    fix = "where the cell ties them too, names={name: None} saves the second copy"
    return [Finding("info", what, few(again), fix)]


def _empty(state: StateDict, left_out: list[str]) -> list[Finding]:
    empty = [name for name in left_out if 0 in state.entries[name].shape]
    if not empty:
        return []
    what = f"{counted(len(empty), 'tensor')} without values left out"
    fix = "MindSpore loads no .ckpt with one; safetensors can hold it"
    return [Finding("warning", what, few(empty), fix)]
