"""Nothing in the repository names a machine, a registry or somebody's folder."""

import csv
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

from migrate_kit.tables import read_table, table_names

ROOT = Path(__file__).parents[2]
# Neither matches its own text here: the backslashes and brackets are in the way.
HOSTS = re.compile(r"pypi\.org|pythonhosted\.org|npmjs\.(?:org|com)|deb\.debian\.org")
PATHS = re.compile(r"(?<![\w.])/(?:work|root|Users/\w+|home/(?!ma-user\b)\w+)/")
TEXT = {
    ".py",
    ".md",
    ".toml",
    ".yml",
    ".yaml",
    ".txt",
    ".cfg",
    ".csv",
    ".js",
    ".css",
    ".json",
    ".ipynb",
}


def files():
    """Every file that is or will be tracked; all of them where there is no git."""
    if shutil.which("git") and (ROOT / ".git").exists():
        command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        names = [name for name in listed.stdout.split("\0") if name]
    else:
        lines = (ROOT / ".gitignore").read_text(encoding="utf-8").split()
        ignored = [".git", *(line.rstrip("/") for line in lines)]
        paths = (p.relative_to(ROOT) for p in ROOT.rglob("*") if p.is_file())
        names = [str(p) for p in paths if not any(fnmatch(a, b) for a in p.parts for b in ignored)]
    return [ROOT / n for n in names if Path(n).suffix in TEXT or Path(n).suffix == ""]


FILES = [path for path in files() if path.is_file()]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_names_no_registry_and_nobodys_folder(path):
    text = path.read_text(encoding="utf-8")
    found = [m[0] for rule in (HOSTS, PATHS) for m in rule.finditer(text)]
    assert found == []


def test_the_rules_find_what_they_are_for():
    assert HOSTS.search("https://pypi" + ".org/simple")
    assert PATHS.search("open('/" + "root/x')")
    assert PATHS.search("/" + "work/main/a.py")
    assert not PATHS.search("a/work/b and framework/x")
    assert len(FILES) > 30


def test_without_git_nothing_that_was_made_or_installed_is_read(tmp_path, monkeypatch):
    shutil.copy(ROOT / ".gitignore", tmp_path)
    made = (".venv/a", "benchmarks/.venv-peers/lib/a", "build/a", "node_modules/a", "__pycache__/a")
    for name in (*made, "benchmarks/kept", "x.egg-info/a", ".hypothesis/a"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"{name}.py").touch()
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    assert {p.name for p in files()} == {".gitignore", "kept.py"}


@pytest.mark.parametrize("name", table_names())
def test_a_table_can_be_read_and_has_sources(name):
    rows = read_table(name)
    assert rows
    assert all(row["source"] for row in rows)


def test_every_csv_of_the_package_is_a_table():
    package = ROOT / "migrate_kit"
    names = {p.stem for p in package.rglob("*.csv")}
    assert names == set(table_names())


@pytest.mark.parametrize("path", sorted((ROOT / "tests").rglob("*.csv")), ids=lambda p: p.name)
def test_a_table_of_the_tests_is_rectangular(path):
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert len({len(row) for row in rows}) == 1


@pytest.mark.parametrize("path", sorted((ROOT / "migrate_kit/snippets").glob("[!_]*.py")), ids=str)
def test_a_snippet_compiles_and_says_what_it_is(path):
    code = compile(path.read_text(encoding="utf-8"), path.name, "exec")
    assert code.co_consts[0]
