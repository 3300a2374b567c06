"""Live views of results. A result imports this room when it is shown, never the other way.

The names are loaded when they are first used: the view of a comparison needs torch, and the
doctor's checklist must open where torch cannot be imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from migrate_kit.widgets.layer_diff import LayerDiffWidget, as_page

__all__ = ["LayerDiffWidget", "as_page"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    from migrate_kit.widgets import layer_diff

    return getattr(layer_diff, name)
