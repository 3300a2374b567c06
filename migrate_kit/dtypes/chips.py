"""What a chip computes in by default: read from ``tables/chips.csv``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from migrate_kit.dtypes.kernels import TARGETS
from migrate_kit.errors import MigrateError
from migrate_kit.tables import read_table
from migrate_kit.targets import named_target

FORMATS = ("fp32", "HF32", "fp16", "bf16")


@dataclass(frozen=True)
class Chip:
    """The default arithmetic of one target.

    Attributes
    ----------
    target, title : str
        The name used here, and the products it stands for.
    conv, matmul : str
        What float32 operands of convolutions and matrix products are rounded to: ``fp32`` (not at
        all), ``HF32``, ``fp16`` or ``bf16``. Sums are kept in float32.
    hf32_bits : int
        Stored mantissa bits of HF32; 0 where the chip has none.
    bf16 : bool
        Whether there are bfloat16 kernels.
    saturates : bool
        Overflow gives the largest number and NaN gives 0, where others give Inf and NaN.
    fuses_attention : bool
        Whether attention is one kernel; it is matmul and softmax otherwise.
    targets : tuple of str
        The rows of ``tables/targets.csv`` that it stands for.
    note, source : str
    """

    target: str
    title: str
    conv: str
    matmul: str
    hf32_bits: int
    bf16: bool
    saturates: bool
    fuses_attention: bool
    targets: tuple[str, ...]
    note: str
    source: str

    @property
    def rounds(self) -> bool:
        """Whether any float32 operand is rounded."""
        return (self.conv, self.matmul) != ("fp32", "fp32")

    @property
    def arithmetic(self) -> str:
        """Say the defaults in a few words."""
        overflow = "overflow saturates" if self.saturates else "overflow gives Inf"
        return f"convolution {self.conv}, matmul {self.matmul}, sums float32, {overflow}"


@lru_cache(maxsize=1)
def chips() -> dict[str, Chip]:
    """Return every chip by target.

    Examples
    --------
    >>> chips()["ascend910b"].conv
    'HF32'
    """
    return {row["target"]: _chip(row) for row in read_table("chips")}


_WORDS = {
    "conv": FORMATS,
    "matmul": FORMATS,
    "bf16": ("yes", "no"),
    "nonfinite": ("saturate", "inf-nan"),
    "attention": ("fused", "parts"),
}


def _chip(row: dict[str, str]) -> Chip:
    for column, words in _WORDS.items():
        if row[column] not in words:
            raise MigrateError(
                f"{column} is {row[column]!r} for {row['target']}",
                "tables/chips.csv",
                f"it may be: {', '.join(words)}",
            )
    return Chip(
        row["target"],
        row["title"],
        row["conv"],
        row["matmul"],
        int(row["hf32_bits"] or 0),
        row["bf16"] == "yes",
        row["nonfinite"] == "saturate",
        row["attention"] == "fused",
        tuple(row["targets"].split()),
        row["note"],
        row["source"],
    )


def find_chip(target: str) -> Chip:
    """Return the chip of a target, by its name or a SoC name.

    Raises
    ------
    MigrateError
        If there is none; it lists the targets.

    Examples
    --------
    >>> find_chip("Ascend310P3").target
    'ascend310p'
    """
    found = named_target(target)
    for chip in chips().values():
        if found is not None and found.name in chip.targets:
            return chip
    reason = "" if found is None else ": no table of its operators and dtypes was found"
    raise MigrateError(
        f"{str(target)[:80]!r} cannot be rehearsed{reason}",
        "target=",
        f"choose one of: {', '.join(chips())}, or a SoC name such as Ascend910B4",
    )


def table_target(target: str) -> str:
    """Return the one of :data:`TARGETS` that a target or a SoC name stands for.

    Raises
    ------
    MigrateError
        If there is none.

    Examples
    --------
    >>> table_target("Ascend310P3")
    'ascend310p'
    """
    try:
        return find_chip(target).target
    except MigrateError as error:
        raise MigrateError(
            f"no tables for the target {target!r}"[:200],
            "target=",
            f"choose one of: {', '.join(TARGETS)}, or a SoC name such as Ascend910B4",
        ) from error
