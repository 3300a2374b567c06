"""How long a reader waits for an explanation: 20 MB logs, 200 MB, one message, hostile lines.

python benchmarks/bench_explain.py
"""

from __future__ import annotations

import random
import statistics
import sys
import time
from typing import TYPE_CHECKING

from figure import Figure, at_most, plain_table

import migrate_kit as mk
from migrate_kit.environment.signatures import signatures

if TYPE_CHECKING:
    from collections.abc import Callable

SIZE = 20_000_000
LOG_LIMIT, LINE_LIMIT = 3.0, 20.0
LINE = 20_000
ROUNDS = 3
MESSAGE = "AttributeError: 'collections.OrderedDict' object has no attribute 'eval'"
WORDS = (
    "epoch step loss lr device rank memory tensor shape float32 the quick brown fox allocated time"
    " cost 2048 error warning data batch aclnn kernel"
)


def training(i: int) -> str:
    loss, seconds = random.random(), random.random()  # noqa: S311 - filler, not a secret
    return f"[2026-01-01 10:{i % 60:02d}:{i % 59:02d},123] INFO step {i} loss {loss} s {seconds}"


def plog(i: int) -> str:
    return (
        f"[ERROR] RUNTIME({1000 + i % 8},python):2026-01-01-10:{i % 60:02d}:{i % 59:02d}.101.202"
        f" [engine.cc:{i % 2000}]{i} report error module_type=5, module_name=EE9999 task {i} failed"
    )


def chinese(i: int) -> str:
    return (
        f"第{i}步 训练正常 损失 {i % 97 / 97:.4f} 显存占用 正常 设备 {i % 8} 用时 {i % 89 / 89} 秒"
    )


def prose(_: int) -> str:
    return " ".join(random.choices(WORDS.split(), k=20))  # noqa: S311 - filler, not a secret


def log(line: Callable[[int], str], end: str = "\n", size: int = SIZE) -> str:
    """Return that many bytes of lines, with one known error in the middle."""
    random.seed(0)
    lines, count, i = [], 0, 0
    while count < size:
        lines.append(line(i))
        count += len(lines[-1].encode()) + 1
        i += 1
    lines[i // 2] = MESSAGE
    return end.join(lines)


def seconds(call: Callable[[], object]) -> float:
    """Return the median over a few calls: the first also reads the tables."""
    spent = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        call()
        spent.append(time.perf_counter() - began)
    return statistics.median(spent)


def hostile() -> list[str]:
    """Return ten long lines that look like the beginning of many rows."""
    rows = [*signatures("errors"), *signatures("benign")]
    words = " ".join(word.decode() for row in rows for word in row.words)
    samples = " ".join(row.row["sample"][:-1].replace("\n", " ") for row in rows)
    seeds = [
        "a", " ", "0", "\t(", '"[::1.a_', "'a' object has no attribute '", "error code is 107001",
        "aclnnA", words, samples,
    ]  # fmt: skip
    return [(seed * (LINE // len(seed) + 1))[:LINE] for seed in seeds]


def worst_row() -> tuple[float, str]:
    """Return the longest time of one regular expression on one hostile line, in ms, and its row."""
    found = []
    for row in (*signatures("errors"), *signatures("benign")):
        row.regex.search("compile first")
        own = row.row["sample"].replace("\n", " ")[:-1]
        for line in (*hostile(), (own * (LINE // len(own) + 1))[:LINE]):
            # The better of two: a pause of the machine is not the expression's.
            times = []
            for _ in range(2):
                began = time.perf_counter()
                row.regex.search(line)
                times.append(time.perf_counter() - began)
            found.append((min(times) * 1e3, row.id))
    return max(found)


def main() -> list[Figure]:
    """Measure; about a minute."""
    figures = []
    for name, text in (
        ("training log", log(training)),
        ("log of errors", log(plog)),
        ("Chinese log", log(chinese)),
        ("random words", log(prose)),
        ("one line", log(prose, " ")),
    ):
        root = mk.explain(text).root
        if root is None or root.id != "SCR02":
            raise RuntimeError(f"{name}: found {root}")
        value = seconds(lambda text=text: mk.explain(text))
        target, passed = at_most(LOG_LIMIT, value)
        figures.append(Figure(f"explain 20 MB, {name}", value, "s", target, passed=passed))
    long = log(training, size=10 * SIZE)
    value = seconds(lambda: mk.explain(long))
    figures.append(Figure("explain 200 MB (32 MB of it are read)", value, "s"))
    figures.append(Figure("explain one message", seconds(lambda: mk.explain(MESSAGE)) * 1e3, "ms"))
    value, row = worst_row()
    target, passed = at_most(LINE_LIMIT, value)
    figures.append(
        Figure(f"slowest row ({row}) on a hostile 20 kB line", value, "ms", target, passed=passed)
    )
    return figures


if __name__ == "__main__":
    done = main()
    print(plain_table(done))
    sys.exit(any(f.passed is False for f in done))
