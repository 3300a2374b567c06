"""python -m migrate_kit.environment: the doctor where not even the notebook's kernel starts."""

from __future__ import annotations

import argparse
import sys
import traceback
from pathlib import Path

from migrate_kit.environment.doctor_command import EXIT_CODES, examine
from migrate_kit.environment.terminal import print_anything, say
from migrate_kit.errors import MigrateError
from migrate_kit.results import plain
from migrate_kit.targets import targets

WRONG_USE, BROKEN = 2, 3


def main(arguments: list[str]) -> int:
    """Print the checklist, and return the exit code that the help explains."""
    print_anything()
    chosen = vars(_parser().parse_args(arguments))
    named = chosen.pop("named")
    target = chosen.pop("target") or named
    lines: list[str] = []
    try:
        code = examine(target, lines.append, **chosen)
    except MigrateError as error:
        # Line by line: the three lines may quote a stranger's text.
        say("error: " + "\n".join(map(plain, str(error).split("\n"))) + "\n", sys.stderr)
        return WRONG_USE
    except Exception:  # noqa: BLE001 - Python's own exit code, 1, already means "something is wrong"
        traceback.print_exc()
        return BROKEN
    say("\n".join(lines) + "\n", sys.stdout)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m migrate_kit.environment",
        description="Examine this machine.",
        epilog=EXIT_CODES,
    )
    known = f"{', '.join(targets())}, or a chip or product such as Ascend910B4, Atlas 300I Duo"
    add = parser.add_argument
    add("target", nargs="?", help=f"what to judge for: {known}")
    add("--target", dest="named", metavar="TARGET", help="the same")
    add("--no-probes", dest="probes", action="store_false", help="start no other process")
    add("--all", dest="every", action="store_true", help="also list what is in order")
    add("--rehearse", action="store_true", help="0 also where the target can only be rehearsed")
    add("--save", type=Path, metavar="FILE", help="keep what was read, as JSON")
    add("--facts", type=Path, metavar="FILE", help="judge what another run kept")
    add("--kernel", metavar="NAME", help="write a Jupyter kernel with the variables")
    add("--env-script", type=Path, metavar="FILE", help="write a script that sets the variables")
    add(
        *("--set-env",),
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="a set_env.sh to take them from; by default those found",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
