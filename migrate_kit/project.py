"""The project: which model, with which weights, inputs and target, and what was found so far."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migrate_kit.errors import MigrateError
from migrate_kit.files import write_text
from migrate_kit.migration import FILE_NAME, Migration, read_migration
from migrate_kit.model import build_model, find_builder, load_weights
from migrate_kit.results import Finding, findings_html, table_html
from migrate_kit.targets import find_target

if TYPE_CHECKING:
    import torch

    from migrate_kit.results import Result

RESULTS = "migrate_kit_results"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_MOST_BYTES = 64 << 20
# Of the weights that a builder draws.
_SEED = 0


class Project:
    """One model on its way to one target.

    Attributes
    ----------
    name : str
    folder : Path
        Where its results are kept.
    target : str
        One of tables/targets.csv.
    is_sample : bool
        Whether it is the embedded sample and not a user's own model.
    findings : list of Finding
        Whatever was odd when it was opened; a kept result that cannot be read is left out.
    results : dict of str to dict
        What earlier steps kept, as plain JSON values; :meth:`keep` adds to it.
    """

    is_sample = False

    def __init__(self, name: str, folder: Path, target: str) -> None:
        self.name, self.folder, self.target = name, folder, target
        self.findings: list[Finding] = []
        # A test run names a folder of its own here: neither reads nor replaces a user's results.
        self._results_folder = Path(os.environ.get("MIGRATE_KIT_RESULTS") or folder / RESULTS)
        self.results = self._read_results()

    def model(self, *, weights: bool = True) -> torch.nn.Module:
        """Return the network in eval mode; every call builds another one.

        ``weights=False`` leaves it as its builder made it, to be diagnosed beside a checkpoint.
        """
        raise NotImplementedError

    def inputs(self) -> tuple[torch.Tensor, ...]:
        """Return tensors such that ``project.model()(*project.inputs())`` runs."""
        raise NotImplementedError

    @property
    def labels(self) -> list[str] | None:
        """The names of the classes, or None."""
        raise NotImplementedError

    @property
    def weights(self) -> Path | None:
        """The file of the weights, or None if the builder brings them."""
        raise NotImplementedError

    @property
    def source(self) -> str:
        """What an error text calls the place that describes it: the file, or the sample."""
        return "the embedded sample"

    def keep(self, result: Result, name: str | None = None) -> str:
        """Add ``result.to_dict()`` to :attr:`results` and to disk; return the name it is under."""
        name = name or result.kind.replace(" ", "_")  # a kind is words, a name is a file's
        _checked(name, "keep(name=)")
        try:
            text = json.dumps(result.to_dict(), indent=1, allow_nan=False, ensure_ascii=False)
        except (TypeError, ValueError) as error:
            raise MigrateError(
                f"the result cannot be kept as JSON: {error}",
                f"{type(result).__name__}.to_dict()",
                "return plain values there: text, finite numbers, lists, dicts, None",
            ) from error
        write_text(self._results_folder / f"{name}.json", text + "\n")
        self.results[name] = json.loads(text)
        return name

    def store(self, name: str) -> Path:
        """Return the folder for what is too large for a result, such as the traces of a rehearsal.

        It is among the project's results and is not made here; a run that keeps something makes it.

        Raises
        ------
        MigrateError
            If the name is not that of one folder.
        """
        return self._results_folder / _checked(name, "store(name)")

    def top(self, output: Any, k: int = 5) -> list[tuple[str, float]]:
        """Return the likeliest classes of the first row of a classifier's output, with softmax.

        A class without a label is named by its number.
        """
        import torch

        row = torch.as_tensor(output).detach().cpu().double()
        row = row.reshape(-1, row.shape[-1])[0].softmax(0)
        values, indices = row.topk(min(k, len(row)))
        labels = self.labels or []
        return [
            (labels[i] if i < len(labels) else f"class {i}", float(v))
            for i, v in zip(indices.tolist(), values, strict=True)
        ]

    def describe(self) -> list[tuple[str, str]]:
        """Return what the project is made of, as pairs of words; no path in them."""
        raise NotImplementedError

    def _read_results(self) -> dict[str, dict[str, Any]]:
        results = {}
        for file in sorted(self._results_folder.glob("*.json")):
            try:
                if file.stat().st_size > _MOST_BYTES:
                    raise ValueError(f"larger than {_MOST_BYTES >> 20} MiB")
                kept = json.loads(file.read_text(encoding="utf-8"))
                if not isinstance(kept, dict):
                    raise TypeError("not a JSON object")
                results[file.stem] = kept
            except (OSError, ValueError, TypeError, RecursionError) as error:
                self.findings.append(
                    Finding(
                        "warning", f"a kept result is unreadable: {error}", file.name, "run again"
                    )
                )
        return results

    def __repr__(self) -> str:
        own = "the embedded sample" if self.is_sample else FILE_NAME
        return f"Project({self.name!r}, target {self.target}, from {own})"

    def _repr_html_(self) -> str:
        # No paths and no count of results: a notebook's stored output must be the same for
        # everybody, and on the second run.
        rows = [("name", self.name), *self.describe(), ("target", self.target)]
        return table_html(repr(self), ("what", "value"), rows) + findings_html(self.findings)


class UserProject(Project):
    """A project described by a migration.toml."""

    def __init__(self, migration: Migration, target: str | None = None) -> None:
        super().__init__(migration.name, migration.folder, target or migration.target)
        self.migration = migration

    def model(self, *, weights: bool = True) -> torch.nn.Module:  # noqa: D102 - the base says it
        m, where = self.migration, f"{self.migration.file}, [model]"
        kwargs = dict(m.kwargs)
        if m.weights_argument:
            kwargs[m.weights_argument] = str(m.weights)
        import torch

        # Without weights the numbers are random, but the same ones in every call: two traces of
        # one project must not differ in the network.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(_SEED)
            model = build_model(find_builder(m.builder, m.folder, where), kwargs, where)
        if weights and m.weights and not m.weights_argument:
            load_weights(model, m.weights, where)
        return model

    def inputs(self) -> tuple[torch.Tensor, ...]:  # noqa: D102
        return tuple(self._input(number) for number in range(1, len(self.migration.inputs) + 1))

    def _input(self, number: int) -> torch.Tensor:
        try:
            return self.migration.inputs[number - 1].tensor()
        except MigrateError as error:
            # An input knows its key, but neither the file nor which of the inputs it is.
            where = f"{self.source}, [[inputs]] number {number}, {error.where}"
            raise MigrateError(error.what, where, error.fix) from error

    @property
    def labels(self) -> list[str] | None:  # noqa: D102
        return None if self.migration.labels is None else list(self.migration.labels)

    @property
    def weights(self) -> Path | None:  # noqa: D102
        return self.migration.weights

    @property
    def source(self) -> str:  # noqa: D102
        return str(self.migration.file)

    def describe(self) -> list[tuple[str, str]]:  # noqa: D102
        m = self.migration
        own = f"random, seed {_SEED}, unless the builder loads its own"
        weights = m.weights.name if m.weights else own
        labels = f"{len(m.labels)} classes" if m.labels else "none"
        inputs = [(f"input {n}", str(i)) for n, i in enumerate(m.inputs)]
        return [("model", m.builder), ("weights", weights), *inputs, ("labels", labels)]


def _checked(name: str, where: str) -> str:
    if not _NAME.fullmatch(name):
        raise MigrateError(
            f"a result cannot be named {name!r}",
            where,
            "use up to 100 letters, digits, dots, dashes and underscores",
        )
    return name


def open_project(
    path: str | os.PathLike[str] | None = None, *, target: str | None = None
) -> Project:
    """Open the user's project, or the embedded sample where there is none.

    Parameters
    ----------
    path : path, optional
        A migration.toml or its folder; ``"sample"`` is the embedded sample. By default the
        variable MIGRATE_KIT_PROJECT says it; without that, migration.toml is looked for in the
        current folder, the notebook's folder and the folders above them, up to the home folder.
    target : str, optional
        Takes the place of the target that the project names.

    Raises
    ------
    MigrateError
        If a key of the file is wrong or missing: it names the key and what it may be.

    Examples
    --------
    >>> project = open_project("sample")
    >>> project
    Project('efficientnet-lite0', target ascend910b, from the embedded sample)
    >>> [tuple(x.shape) for x in project.inputs()]
    [(1, 3, 224, 224)]
    """
    if target is not None:
        target = find_target(target, "open_project(target=)").name
    path = path or os.environ.get("MIGRATE_KIT_PROJECT") or None
    file = _find() if path is None else _named(Path(path))
    if file is None:
        from migrate_kit.sample import SampleProject

        return SampleProject(Path.cwd(), target)
    return UserProject(read_migration(file), target)


def _named(path: Path) -> Path | None:
    path = path.expanduser()
    file = path / FILE_NAME if path.is_dir() else path
    if file.is_file():
        return file
    if str(path) == "sample":
        return None
    raise MigrateError(
        f"no {FILE_NAME} there",
        str(path),
        "name the file or its folder; migrate-kit init writes one",
    )


def _find() -> Path | None:
    try:
        home = Path.home()
    except RuntimeError:  # a container's user without a home
        home = Path("/")
    starts = [Path.cwd()]
    if notebook := os.environ.get("JPY_SESSION_NAME"):  # Jupyter's server sets it for the kernel
        starts.append(Path(notebook).absolute().parent)
    for start in starts:
        for folder in (start, *start.parents):
            file = folder / FILE_NAME
            if file.is_file():
                _refuse_strangers(file, start)
                return file
            if folder == home:
                break
    return None


def _refuse_strangers(file: Path, start: Path) -> None:
    # Opening a project imports the code it names. One that another user put into a shared folder
    # above, such as /tmp, must not be opened only because somebody works below it.
    if not hasattr(os, "geteuid"):
        return
    trusted = {0, os.geteuid(), start.stat().st_uid}
    if file.stat().st_uid not in trusted:
        raise MigrateError(
            f"a {FILE_NAME} of another user is in a folder above this one",
            str(file),
            "open it by its path if you trust it, or open_project('sample')",
        )
