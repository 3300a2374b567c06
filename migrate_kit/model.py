"""The user's network: import its builder, build it, load its weights without running them."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migrate_kit.errors import MigrateError
from migrate_kit.results import few

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

    import torch

_DIAGNOSE = "or see why: mk.diagnose(project.model(weights=False), project.weights)"
# The folders of the projects that were opened in this process.
_folders: set[Path] = set()


def find_builder(text: str, folder: Path, where: str) -> Callable[..., Any]:
    """Import what ``module:function`` or ``package.function`` names, ``folder`` first.

    The folder stays on ``sys.path``: a network may import its neighbours when it first runs.
    """
    module_name, _, attribute = text.partition(":") if ":" in text else text.rpartition(".")
    if not module_name or not attribute:
        raise MigrateError(
            f"builder is {text!r}", where, "write 'module:function' or 'package.function'"
        )
    _search_first(folder)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name + ".").startswith(error.name + "."):
            raise MigrateError(
                f"no module {error.name!r} for builder {text!r}",
                where,
                f"put it in {folder}, or install its package here",
            ) from error
        raise MigrateError(
            f"{module_name} imports {error.name!r}, which is not installed",
            where,
            f"install {error.name!r} in this environment",
        ) from error
    except Exception as error:
        raise MigrateError(
            f"{module_name} fails when imported: {type(error).__name__}: {error}",
            where,
            f"make `python -c 'import {module_name}'` run in {folder}",
        ) from error
    return _attribute(module, attribute, where)


def build_model(
    builder: Callable[..., Any], kwargs: Mapping[str, Any], where: str
) -> torch.nn.Module:
    """Call the builder and return an ``nn.Module`` in eval mode."""
    import torch

    try:
        model = builder(**kwargs)
    except MigrateError:
        raise
    except Exception as error:
        raise MigrateError(
            f"the builder fails: {type(error).__name__}: {error}",
            where,
            f"check [model] kwargs against its signature{_raised_in(error)}",
        ) from error
    if not isinstance(model, torch.nn.Module):
        raise MigrateError(
            f"the builder returned {type(model).__name__}, not an nn.Module",
            where,
            "let it return the network itself",
        )
    return model.eval()


def load_weights(model: torch.nn.Module, path: Path, where: str) -> None:
    """Load a file's state_dict into the model; every name and shape must fit."""
    import torch

    from migrate_kit.checkpoints.load import load_checkpoint

    try:
        state: Mapping[str, torch.Tensor] = load_checkpoint(path).state_dict
    except MigrateError as error:
        raise MigrateError(error.what, f"{where}, weights {error.where}", error.fix) from error
    if all(name.startswith("module.") for name in state):
        # DataParallel's prefix; a network with a child of that name keeps it.
        bare = {name.removeprefix("module."): state[name] for name in state}
        state = bare if set(bare) & set(model.state_dict()) else state
    try:
        with torch.no_grad():
            fit = model.load_state_dict(state, strict=False)
    except RuntimeError as error:
        raise MigrateError(
            f"weights of another shape: {str(error).splitlines()[-1].strip()}",
            where,
            f"build the network with the sizes it was trained with ([model] kwargs), {_DIAGNOSE}",
        ) from error
    if fit.missing_keys or fit.unexpected_keys:
        raise MigrateError(
            f"the weights do not fit: missing {few(fit.missing_keys)}; "
            f"unexpected {few(fit.unexpected_keys)}",
            where,
            f"name the builder of the very network that was saved, {_DIAGNOSE}",
        )


def _search_first(folder: Path) -> None:
    # Two projects may both have a net.py, and each net.py a parts.py beside it: what was imported
    # from the one must not stand in for the other's.
    for name, module in list(sys.modules.items()):
        file, top = getattr(module, "__file__", None), name.partition(".")[0]
        if not file or not ((folder / top).is_dir() or (folder / f"{top}.py").is_file()):
            continue
        home = Path(file)
        if any(home.is_relative_to(f) for f in _folders) and not home.is_relative_to(folder):
            del sys.modules[name]
    if str(folder) in sys.path:
        sys.path.remove(str(folder))
    sys.path.insert(0, str(folder))
    _folders.add(folder)
    importlib.invalidate_caches()  # a file may be younger than the last look at the folder


def _attribute(module: ModuleType, attribute: str, where: str) -> Callable[..., Any]:
    found: Any = module
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        names = sorted(n for n, v in vars(module).items() if callable(v) and not n.startswith("_"))
        raise MigrateError(
            f"{module.__name__} has no function {attribute!r}",
            where,
            f"it has: {few(names, 12)}",
        )
    return found  # type: ignore[no-any-return]


def _raised_in(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    if len(frames) < 2:  # the call itself was refused
        return ""
    return f"; raised in {Path(frames[-1].filename).name}, line {frames[-1].lineno}"
