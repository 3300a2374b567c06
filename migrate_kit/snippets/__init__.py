"""Stand-alone scripts to copy out: each imports only what it names, never migrate_kit."""

from __future__ import annotations

import ast
import html
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from migrate_kit.errors import MigrateError

FOLDER = Path(__file__).parent

# Plain JavaScript in the attribute: a <script> in an output is dropped by JupyterLab's sanitiser.
# navigator.clipboard exists only over https and on localhost; elsewhere the text is selected and
# copied the old way.
_COPY = (
    "const b=this,p=b.nextElementSibling;"
    "const done=()=>{b.textContent='Copied';setTimeout(()=>b.textContent='Copy',1500)};"
    "const old=()=>{const r=document.createRange();r.selectNodeContents(p);"
    "const s=getSelection();s.removeAllRanges();s.addRange(r);"
    "if(document.execCommand('copy'))done();else b.textContent='Press Ctrl+C'};"
    "if(navigator.clipboard)navigator.clipboard.writeText(p.textContent).then(done,old);else old()"
)


@dataclass(frozen=True)
class Snippet:
    """One script: its text, and the file it can be copied from."""

    name: str
    path: Path

    @property
    def text(self) -> str:
        """The whole script."""
        return self.path.read_text(encoding="utf-8")

    @property
    def summary(self) -> str:
        """The first line of the script's docstring."""
        return (ast.get_docstring(ast.parse(self.text)) or "").partition("\n")[0]

    def show(self) -> Any:
        """Return the script with a button that copies it."""
        from IPython.display import HTML

        button = f'<button type="button" onclick="{html.escape(_COPY)}">Copy</button>'
        return HTML(button + self._repr_html_())

    def __repr__(self) -> str:
        return f"Snippet({self.name!r}: {self.summary})"

    def _repr_html_(self) -> str:
        # Said here: the page that nbconvert makes sets no font for it.
        return f"<pre style='font-family: monospace'>{html.escape(self.text)}</pre>"


def snippet_names() -> list[str]:
    """Return the names that :func:`snippet` knows."""
    return sorted(path.stem for path in FOLDER.glob("*.py") if not path.stem.startswith("_"))


def snippet(name: str) -> Snippet:
    """Return a script to copy out, by name.

    Raises
    ------
    MigrateError
        If there is none of that name; it lists those there are.

    Examples
    --------
    >>> for name in snippet_names():
    ...     assert snippet(name).summary
    """
    names = snippet_names()
    if name not in names:
        raise MigrateError(
            f"no snippet {name!r}",
            "snippet()",
            f"choose one of: {', '.join(names)}" if names else "there is none in this version",
        )
    return Snippet(name, FOLDER / f"{name}.py")
