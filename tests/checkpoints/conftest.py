"""Real files, where they are there."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def cases():
    """Return the folder of real files, or skip."""
    folder = Path(os.environ.get("MIGRATE_KIT_CASES") or ROOT.parent / "shared" / "cases")
    if not folder.is_dir():
        pytest.skip("the real files are not here (MIGRATE_KIT_CASES names their folder)")
    return folder
