"""Comparisons that no engine made, for the pages of the browser tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from migrate_kit.layers.rows import LayerRow

if TYPE_CHECKING:
    from playwright.sync_api import Locator

HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "quotes\"'`${x}",
    "line one\nline two\ttab",
    "right\u202eot tfel",
    "שכבה.קונבולוציה",
    "层.卷积😀",
    "a" * 300 + ".the_tail",
    "",
    "__proto__",
]


def rows_of(count: int = 500) -> list[LayerRow]:
    """Return layers of which every hundredth differs and every tenth deserves a look."""
    made = []
    for i in range(count):
        verdict = "differs" if i % 100 == 42 else "look" if i % 10 == 3 else "same"
        r = {"differs": 300.0 + i, "look": 4.0, "same": 1.0 + (i * 7 % 10) / 100}[verdict]
        made.append(
            LayerRow(
                f"layers.{i}.conv", f"layers.{i}.conv", kind="ReLU" if i % 2 else "Conv2d",
                shape=(1, 8, 4, 4), R=r, verdict=verdict, max_abs=r * 1e-6,
                channel="forward" if i < 400 else "gradient",
                rho=float("nan") if i % 5 else float(i),
            )
        )  # fmt: skip
    return made


def tensors_of(count: int = 500) -> dict[int, tuple[torch.Tensor, torch.Tensor]]:
    reference = torch.linspace(-1, 1, 128).view(1, 8, 4, 4)
    return {i: (reference, reference + (i + 1) * 1e-3 * reference) for i in range(count)}


@dataclass
class FakeDiff:
    """What the widget needs of a comparison, from rows and a dict of tensors."""

    rows: list[LayerRow]
    kept: dict[int, tuple[torch.Tensor | None, torch.Tensor | None]] = field(default_factory=dict)

    def tensors(self, i: int) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        return self.kept.get(i, (None, None))

    @property
    def first_divergence(self) -> LayerRow | None:
        return next((r for r in self.rows if r.verdict == "differs"), None)

    def __repr__(self) -> str:
        return f"LayerDiff({len(self.rows)} layers)"

    def _repr_html_(self) -> str:
        return "<table><tr><td>static</td></tr></table>"


def colours(canvas: Locator) -> int:
    """Count the colours that are on a canvas."""
    return canvas.evaluate("""c => {
      const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data, s = new Set();
      for (let i = 0; i < d.length; i += 4) s.add(d[i] << 24 | d[i+1] << 16 | d[i+2] << 8 | d[i+3]);
      return s.size }""")


def column(widget: Any, key: str) -> list[str]:
    """Return the texts of a column, from the top."""
    return widget.root.locator(f'[data-row] [data-cell="{key}"]').all_inner_texts()
