"""Live views of results. A result imports this room when it is shown, never the other way."""

from migrate_kit.widgets.layer_diff import LayerDiffWidget, as_page

__all__ = ["LayerDiffWidget", "as_page"]
