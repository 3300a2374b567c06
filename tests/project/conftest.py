import pytest

NET = """
import torch

def build(width=4):
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, width, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(), torch.nn.Linear(width, 2))

def broken():
    raise RuntimeError("no such file: cfg.yaml")

def a_list():
    return [1]

def own_weights(checkpoint):
    model = build()
    model.path = checkpoint
    return model

number = 5
"""


@pytest.fixture(autouse=True)
def _no_project_of_the_users(monkeypatch):
    for name in ("MIGRATE_KIT_PROJECT", "MIGRATE_KIT_RESULTS", "JPY_SESSION_NAME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a network, that sys.path forgets afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "net.py").write_text(NET)
    return tmp_path


@pytest.fixture
def write(folder):
    """Write migration.toml; whatever is not given is sound."""

    def write_(text=None, *, model='builder = "net:build"', inputs="shape = [1, 3, 8, 8]", more=""):
        file = folder / "migration.toml"
        file.write_text(text or f"[model]\n{model}\n[[inputs]]\n{inputs}\n{more}\n")
        return file

    return write_
