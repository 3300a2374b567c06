"""Names in a pickle that no file of weights needs, and that run what the file's maker likes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# Modules that start programs, open files and connections, or run text as code.
_MODULES = frozenset(
    word
    for line in """
    os posix nt subprocess _posixsubprocess commands popen2 pty sys shutil socket runpy importlib
    imp ctypes _ctypes webbrowser code codeop bdb pdb doctest profile cProfile timeit trace pip
    venv ensurepip pydoc multiprocessing asyncio threading _thread signal pickle _pickle marshal
    http urllib urllib2 requests ftplib smtplib telnetlib tempfile io _io pkgutil platform
    distutils site
    """.splitlines()
    for word in line.split()
)
_BUILTINS = ("builtins", "__builtin__")
# Of the builtins, types that only hold something.
_HARMLESS = frozenset(
    word
    for line in """
    object slice complex range xrange int long float str unicode bool tuple type set frozenset
    list dict bytes bytearray NotImplemented Ellipsis Exception ValueError TypeError KeyError
    """.splitlines()
    for word in line.split()
)
_SINGLE = frozenset(
    ("operator.methodcaller", "operator.attrgetter", "types.FunctionType", "types.CodeType")
)


def dangerous(names: Iterable[str]) -> list[str]:
    """Return which of the names run code that no checkpoint needs.

    Examples
    --------
    >>> dangerous(["posix.system", "builtins.object", "builtins.eval", "pathlib.PosixPath"])
    ['posix.system', 'builtins.eval']
    """
    return [name for name in names if _runs(name)]


def _runs(name: str) -> bool:
    module, _, own = name.partition(".")
    if module in _BUILTINS:
        return own not in _HARMLESS
    return module in _MODULES or name in _SINGLE
