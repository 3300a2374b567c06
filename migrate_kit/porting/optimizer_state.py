"""What a PyTorch optimizer remembers, for a MindSpore optimizer that goes on with it."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from migrate_kit.errors import MigrateError, meant
from migrate_kit.porting.moments import OptimizerState
from migrate_kit.porting.renaming import Renamed, by_layer, kinds_of_all
from migrate_kit.porting.rules import forward
from migrate_kit.results import Finding, counted, few

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    _Source = Mapping[str, Any] | str | os.PathLike[str]


class _Kind(NamedTuple):
    """One of MindSpore's optimizers: its state's names by torch's, its arguments by torch's."""

    cell: str
    state: Mapping[str, str]
    arguments: Mapping[str, str]


_SGD = {"lr": "learning_rate", "momentum": "momentum", "weight_decay": "weight_decay"}
_ADAM = {"lr": "learning_rate", "betas": "betas", "eps": "eps", "weight_decay": "weight_decay"}
_MOMENTS = {"exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq"}
KINDS = {
    "SGD": _Kind(
        "mindspore.nn.SGD",
        {"momentum_buffer": "accum"},
        {**_SGD, "dampening": "dampening", "nesterov": "nesterov"},
    ),
    "Momentum": _Kind(
        "mindspore.nn.Momentum",
        {"momentum_buffer": "moments"},
        _SGD,
    ),
    "Adam": _Kind("mindspore.nn.Adam", {"exp_avg": "moment1", "exp_avg_sq": "moment2"}, _ADAM),
    "AdamW": _Kind("mindspore.experimental.optim.AdamW", _MOMENTS, {**_ADAM, "lr": "lr"}),
}


def optimizer_state(
    source: _Source,
    names: Mapping[str, str] | None = None,
    *,
    to: str,
    model: nn.Module | None = None,
) -> OptimizerState:
    """Turn a PyTorch optimizer's state into what one of MindSpore's keeps.

    Parameters
    ----------
    source : mapping or path
        ``optimizer.state_dict()``, or a training checkpoint that holds one.
    names : mapping of str to str, optional
        MindSpore's name for each parameter, in the order in which the optimizer got them.
    to : {"SGD", "Momentum", "Adam", "AdamW"}
        ``mindspore.nn``'s, and for AdamW ``mindspore.experimental.optim``'s: the only one on a
        CPU that corrects the bias as PyTorch does.
    model : torch.nn.Module, optional
        Its layers' types give the names that ``names`` lacks, and Conv1d's four dimensions.

    Returns
    -------
    OptimizerState
        ``.entries`` go into a checkpoint beside the weights, ``.arguments`` are what MindSpore's
        optimizer has to be made with. A schedule's step is in neither.

    Raises
    ------
    MigrateError
        If the optimizer has no counterpart, or the names do not fit its parameters.

    Examples
    --------
    >>> net = torch.nn.Linear(3, 2)
    >>> optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    >>> net(torch.ones(3)).sum().backward()
    >>> optimizer.step()
    >>> state = optimizer_state(optimizer.state_dict(), to="SGD", model=net)
    >>> list(state.entries)
    ['accum.weight', 'stat.weight', 'accum.bias', 'stat.bias']
    """
    kind, content = _kind(to), _content(source)
    groups: Sequence[Mapping[str, Any]] = content["param_groups"]
    states: Mapping[Any, Mapping[str, Any]] = content["state"]
    moves = _moves(groups, names, model)
    _refuse(groups, states.values(), to)
    entries: dict[str, torch.Tensor] = {}
    for index, move in moves.items():
        for own, theirs in kind.state.items():
            value = states.get(index, {}).get(own)
            if value is not None:
                entries[f"{theirs}.{move.name}"] = forward(move.transform, value.detach().cpu())
        if to == "SGD" and f"accum.{move.name}" in entries:
            # 1 would stand for a first step, which takes the gradient for the momentum.
            entries[f"stat.{move.name}"] = torch.zeros_like(entries[f"accum.{move.name}"])
    if to in ("Adam", "AdamW") and entries:
        entries |= _counters(groups, states.values(), to)
    without = [move.torch_name for index, move in moves.items() if not states.get(index)]
    findings = _findings(groups, without, to, carried=bool(entries))
    return OptimizerState(kind.cell, entries, _arguments(groups[0], kind), findings)


def _kind(to: str) -> _Kind:
    if to == "AdamWeightDecay":
        raise MigrateError(
            "nn.AdamWeightDecay corrects no bias: its steps are others from the same state",
            "to=",
            f"take {KINDS['AdamW'].cell}",
        )
    if to not in KINDS:
        raise MigrateError(
            f"state for {to!r} is not known{meant(to, KINDS)}",
            "to=",
            f"one of {', '.join(KINDS)}",
        )
    return KINDS[to]


def _content(source: _Source) -> Mapping[str, Any]:
    """Return the optimizer's state_dict, of a training checkpoint the first in it."""
    where = "state"
    if isinstance(source, str | os.PathLike):
        where = str(source)
        try:
            source = torch.load(Path(source), map_location="cpu", weights_only=True)
        except (OSError, RuntimeError, ValueError, EOFError, pickle.UnpicklingError) as error:
            first = (str(error).splitlines() or ["damaged"])[0]
            raise MigrateError(
                f"no optimizer can be read: {first[:120]}",
                where,
                "save optimizer.state_dict() alone with torch.save",
            ) from error
    inside = [source, *(source.values() if isinstance(source, Mapping) else ())]
    for content in inside:
        if isinstance(content, Mapping) and {"state", "param_groups"} <= content.keys():
            return content
    raise MigrateError("no optimizer's state", where, "give optimizer.state_dict()")


def _moves(
    groups: Sequence[Mapping[str, Any]],
    names: Mapping[str, str] | None,
    model: nn.Module | None,
) -> dict[Any, Renamed]:
    """Return the MindSpore name for each of the optimizer's numbers."""
    indices = [index for group in groups for index in group["params"]]
    kinds = kinds_of_all(model) if model is not None else {}
    rules: dict[str, Renamed] = {}
    for name, _ in model.named_parameters() if model is not None else ():
        rules[name] = by_layer(name, kinds) or Renamed(name, name)
    given = names or {}
    # Newer versions note the names; else the order is all there is.
    order = [str(name) for group in groups for name in group.get("param_names") or ()]
    order = order or list(names if names is not None else rules)
    if len(order) != len(indices):
        raise MigrateError(
            f"{counted(len(order), 'name')} for the {counted(len(indices), 'parameter')} of the"
            " optimizer",
            "names=",
            "name each parameter once, in the optimizer's order and without buffers:"
            " {n: names[n] for n, _ in model.named_parameters()}",
        )
    unknown = [name for name in order if name not in given and name not in rules]
    if unknown:
        raise MigrateError(f"no name for {few(unknown)}", "names=", "name it, or give model=")
    moves = [rules.get(name, Renamed(name, given.get(name, name))) for name in order]
    return {
        index: move._replace(name=given.get(move.torch_name, move.name))
        for index, move in zip(indices, moves, strict=True)
    }


def _refuse(groups: Sequence[Mapping[str, Any]], states: Any, to: str) -> None:
    """Refuse what the optimizer asked for does not do."""
    known = {"step", *(own for kind in KINDS.values() for own in kind.state)}
    held = {key for state in states for key, value in state.items() if value is not None}
    wanted = set(KINDS[to].state) | {"step"}

    def refuse(what: str, fix: str) -> None:
        raise MigrateError(what, f"the state for {KINDS[to].cell}", fix)

    if any(group.get("amsgrad") for group in groups):
        refuse("amsgrad's third moment is not carried over", "train without amsgrad, or begin anew")
    if any(group.get("maximize") for group in groups):
        refuse("maximize has no counterpart", "negate the loss in both")
    if held - known:
        refuse(f"no counterpart of {few(sorted(held - known))}", "begin this optimizer anew")
    if held - wanted:
        fit = [name for name, kind in KINDS.items() if set(kind.state) & held]
        refuse(f"{few(sorted(held - wanted))} is not what it keeps", f"take {' or '.join(fit)}")
    if to == "Momentum" and any(group.get("dampening") for group in groups):
        refuse("nn.Momentum has no dampening", "take SGD")
    if to == "Momentum" and any(group.get("nesterov") for group in groups):
        refuse("nn.Momentum does nothing for use_nesterov on a CPU (2.10)", "take SGD")
    decays = [group for group in groups if group.get("weight_decay")]
    decoupled = {group.get("decoupled_weight_decay") for group in decays}
    if to == "Adam" and True in decoupled:
        refuse("AdamW's weight decay is not Adam's", "take AdamW")
    if to == "AdamW" and False in decoupled:
        refuse("Adam's weight decay is not AdamW's", "take Adam")


def _counters(groups: Sequence[Mapping[str, Any]], states: Any, to: str) -> dict[str, torch.Tensor]:
    """Return the steps taken, as Adam's powers of beta or AdamW's number."""
    steps = {int(state["step"]) for state in states if "step" in state}
    betas = {tuple(map(float, group["betas"])) for group in groups}
    if len(steps) != 1 or (to == "Adam" and len(betas) != 1):
        what = "numbers of steps" if len(steps) != 1 else "pairs of betas"
        raise MigrateError(
            f"the parameters have several {what}, and MindSpore keeps one",
            "the optimizer's state",
            "begin with a new optimizer, or carry one with all parameters trained alike",
        )
    (step,) = steps
    if to == "AdamW":
        return {"state_step": torch.tensor(step, dtype=torch.int32)}
    ((beta1, beta2),) = betas
    return {
        "beta1_power": torch.tensor(beta1**step, dtype=torch.float32),
        "beta2_power": torch.tensor(beta2**step, dtype=torch.float32),
    }


def _arguments(group: Mapping[str, Any], kind: _Kind) -> dict[str, Any]:
    """Return PyTorch's settings under the names of MindSpore's arguments."""
    found = {new: group[old] for old, new in kind.arguments.items() if old in group}
    if "betas" in found:
        betas = tuple(map(float, found.pop("betas")))
        split = kind.cell == "mindspore.nn.Adam"
        found |= dict(zip(("beta1", "beta2"), betas, strict=True)) if split else {"betas": betas}
    return {k: v.item() if isinstance(v, torch.Tensor) else v for k, v in found.items()}


def _findings(
    groups: Sequence[Mapping[str, Any]], without: list[str], to: str, *, carried: bool
) -> list[Finding]:
    found = []
    if not carried:
        what = "the optimizer has no state yet: there is nothing to carry over"
        found.append(Finding("info", what, KINDS[to].cell))
    elif without:
        what = f"{counted(len(without), 'parameter')} without state: no step has changed them"
        found.append(Finding("info", what, few(without), "they begin anew in MindSpore too"))
    keys = KINDS[to].arguments
    differ = [key for key in keys if len({str(group.get(key)) for group in groups}) > 1]
    if differ:
        what = f"the groups differ in {few(differ)}; the arguments are those of the first"
        fix = "give MindSpore the same groups"
        found.append(Finding("warning", what, KINDS[to].cell, fix))
    if to != "AdamW" and any(group.get("weight_decay") for group in groups):
        what = "MindSpore decays no gamma and no beta where the parameters are no group"
        fix = 'give them as one: [{"params": net.trainable_params(), "weight_decay": ...}]'
        found.append(Finding("info", what, KINDS[to].cell, fix))
    return found
