"""What every view is made of: files joined to one script, static HTML beside it, a page alone."""

from __future__ import annotations

import base64
import html
import json
from pathlib import Path
from typing import Any

import anywidget

_STATIC = Path(__file__).parent / "static"
_EXPORT = "export default { render };"


def joined(*names: str) -> str:
    """Return files of ``static`` as one text, in this order: anywidget takes one module."""
    return "\n".join((_STATIC / name).read_text(encoding="utf-8") for name in names)


class View(anywidget.AnyWidget):
    """A widget whose result is also told without any script."""

    def _static_html(self) -> str:
        """Return what a front end without the extension shows, and a saved notebook keeps."""
        raise NotImplementedError

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        data, metadata = bundle
        return data | {"text/html": self._static_html()}, metadata


def page(title: str, script: str, style: str, start: str, data: Any) -> str:
    """Return a view as a whole page that needs neither a widget manager nor a kernel.

    Parameters
    ----------
    title : str
        The page's title.
    script, style : str
        Those of the widget.
    start : str
        The file of ``static`` that makes the model of ``data`` and starts the page with it.
    data : JSON value
        Reaches the page as base64 in an element that is never run as a script.
    """
    code = f"{script.replace(_EXPORT, '')}\n{joined('page_host.js', start)}"
    kept = base64.b64encode(json.dumps(data).encode()).decode()
    # The policy makes sure of it: nothing is loaded, whatever a name in the data is.
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
        "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none';"
        " script-src 'unsafe-inline'; style-src 'unsafe-inline'\">"
        f"<title>{html.escape(title)}</title><style>{style}</style></head><body class='mk-page'>"
        f"<main id='here'></main><script id='data' type='text/plain'>{kept}</script>"
        f"<script type='module'>{code}</script></body></html>"
    )
