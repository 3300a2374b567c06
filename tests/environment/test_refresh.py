"""The script that looks up newer releases; what it asks the index for is not run here."""

import sys
from pathlib import Path

from migrate_kit.tables import read_table
from migrate_kit.tables.tables import FOLDER

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import refresh_compat


def test_only_what_is_newer_than_the_table_is_new():
    known = ["2.13.0", "2.14.0", "2.14.0rc1", ">=1", "<2.3"]
    assert refresh_compat.newer("2.15.0", known)
    assert refresh_compat.newer("2.14.0.post2", known)
    assert not refresh_compat.newer("2.14.0", known)
    assert not refresh_compat.newer("2.13.0.post9", known)
    assert not refresh_compat.newer("9.0", [">=1"])


def test_the_table_is_written_as_it_was_read():
    text = (FOLDER / "compat.csv").read_text(encoding="utf-8")
    assert refresh_compat.text(read_table("compat")) == text
