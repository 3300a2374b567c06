"""python -m migrate_kit.environment: the doctor where not even the notebook's kernel starts."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from migrate_kit.environment.doctor import check_environment
from migrate_kit.environment.facts import Facts
from migrate_kit.errors import MigrateError

FOUND, WRONG_USE = 1, 2


def main(arguments: list[str]) -> int:
    """Print the checklist; 1 if there is an error in it."""
    parser = argparse.ArgumentParser(
        prog="python -m migrate_kit.environment", description="Examine this machine."
    )
    parser.add_argument("--target", help="one of tables/targets.csv")
    parser.add_argument("--no-probes", action="store_true", help="start no other process")
    parser.add_argument("--all", action="store_true", help="also list what is in order")
    parser.add_argument("--save", type=Path, metavar="FILE", help="keep what was read, as JSON")
    parser.add_argument("--facts", type=Path, metavar="FILE", help="judge what another run kept")
    chosen = parser.parse_args(arguments)
    try:
        facts = Facts.load(chosen.facts) if chosen.facts else None
        report = check_environment(chosen.target, probes=not chosen.no_probes, facts=facts)
        if chosen.save:
            report.facts.save(chosen.save)
    except MigrateError as error:
        sys.stderr.write(f"error: {error}\n")
        return WRONG_USE
    sys.stdout.write("\n".join(report.lines(every=chosen.all)) + "\n")
    return 0 if report.ok else FOUND


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
