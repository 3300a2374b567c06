"""Look up releases that tables/compat.csv does not have yet, through pip's own configuration.

python tools/refresh_compat.py            say what is new
python tools/refresh_compat.py --write    add a row for each, with what its metadata asks for

Only the package index is asked, with `pip index versions` and `pip install --dry-run`: a row for a
new torch_npu says which torch it asks for, and leaves the CANN that it is paired with open, since
the index does not tell. No test runs this.
"""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
from packaging.requirements import Requirement  # noqa: E402
from packaging.version import Version  # noqa: E402

from migrate_kit.files import write_text  # noqa: E402
from migrate_kit.tables import read_table  # noqa: E402
from migrate_kit.tables.tables import FOLDER  # noqa: E402

PACKAGES = ("torch_npu", "torchvision", "torchaudio", "mindspore", "torch_mlu")
# Asking for the metadata of this one may fetch a wheel of 800 MB.
LARGE = {"mindspore"}
PARTNERS = ("torch", "numpy", "protobuf")
SECONDS = 300


def main(arguments: list[str]) -> int:
    """Print what is new; with --write, add it to the table."""
    rows = read_table("compat")
    added = []
    for package in PACKAGES:
        known = [r["version"] for r in rows if r["package"] == package]
        fresh = [v for v in versions(package) if newer(v, known)]
        print(f"{package}: {', '.join(fresh) or 'nothing new'}", flush=True)
        if "--write" in arguments:
            added += [r for v in fresh if (r := row(package, v, list(rows[0]))) is not None]
    if added:
        write_text(FOLDER / "compat.csv", text([*rows, *added]))
        print(f"added {len(added)} rows; look up their CANN in COMPATIBILITY.md of Ascend/pytorch")
    return 0


def versions(package: str) -> list[str]:
    """Return the versions that the index offers, oldest first."""
    done = pip("index", "versions", package)
    found = re.search(r"^Available versions: (.+)$", done.stdout, re.MULTILINE)
    return sorted(found[1].split(", "), key=Version) if found else []


def newer(version: str, known: list[str]) -> bool:
    """Say whether a release is not in the table and newer than the oldest exact one in it."""
    exact = [Version(k) for k in known if re.fullmatch(r"[\w.]+", k)]
    if not exact:
        return False  # the table has bounds only
    return Version(version) not in exact and Version(version) > max(exact)


def row(package: str, version: str, columns: list[str]) -> dict[str, str] | None:
    """Return a row with what the release's metadata asks for; None if it cannot be read here."""
    found = dict.fromkeys(columns, "")
    today = dt.datetime.now(tz=dt.timezone.utc).date().isoformat()
    found |= {"package": package, "version": version, "checked": today}
    found["source"] = "package index"
    if package in LARGE:
        return found | {"note": "its metadata was not read"}
    spec = f"{package}=={version}"
    done = pip("install", "--dry-run", "--no-deps", "--ignore-installed", "--report", "-", spec)
    try:
        metadata = json.loads(done.stdout)["install"][0]["metadata"]
    except (ValueError, LookupError):
        print(f"{spec}: pip does not give its metadata here: {done.stderr.strip()[-200:]}")
        return None
    for line in metadata.get("requires_dist", []):
        requirement = Requirement(line)
        if requirement.name.lower() in PARTNERS and "extra" not in str(requirement.marker):
            wanted = re.sub(r"\+[\w.]+", "", str(requirement.specifier))
            exact = re.fullmatch(r"==([\w.]+?)(?:\.\*)?", wanted)
            found[requirement.name.lower()] = exact[1] if exact else wanted
    found["source"] = "package index; wheel METADATA, Requires-Dist"
    return found


def text(rows: list[dict[str, str]]) -> str:
    """Return the table as CSV."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def pip(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pip, quietly; a failure gives an empty answer."""
    command = [sys.executable, "-m", "pip", *arguments, "--disable-pip-version-check", "--quiet"]
    if arguments[0] == "index":
        command.remove("--quiet")
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
