"""Checkpoints for notebooks: each says in one line that the idea above holds, or why not.

A passed check returns text that starts with a tick; a failed one raises ``AssertionError`` with
both sides of the comparison, so that a reader sees what was expected without a debugger.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Container


class _HasFindings(Protocol):
    @property
    def ok(self) -> bool: ...

    @property
    def findings(self) -> list[Any]: ...


class Passed(str):
    """Text that a notebook shows without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def true(condition: object, what: str) -> Passed:
    """Check that ``condition`` holds.

    Examples
    --------
    >>> true(2 > 1, "two is more than one")
    ✓ two is more than one
    """
    _demand(bool(condition), f"expected: {what}")
    return Passed(f"✓ {what}")


def equal(actual: object, expected: object, what: str = "") -> Passed:
    """Check that two plain values are equal; tensors go to :func:`close`.

    Examples
    --------
    >>> equal(["conv1"], ["conv1"], "the first layer that differs")
    ✓ the first layer that differs: ['conv1']
    """
    same = actual == expected
    if not isinstance(same, bool):
        raise TypeError("check.equal compares plain values; for arrays and tensors: check.close")
    _demand(same, _lines(what, f"{expected!r}", f"{actual!r}"))
    return Passed(f"✓ {_label(what)}{actual!r}")


def close(actual: Any, expected: Any, within: float, what: str = "") -> Passed:
    """Check that no element is further than ``within`` from the expected one; NaN never is close.

    Parameters
    ----------
    actual, expected : number, array or tensor
    within : float
        The largest absolute difference allowed.

    Examples
    --------
    >>> close(0.3366, 0.34, within=0.005, what="probability")
    ✓ probability: apart by 0.0034, at most 0.005 allowed
    """
    import numpy as np

    a, b = _array(actual), _array(expected)
    _demand(a.shape == b.shape, _lines(what, f"shape {b.shape}", f"shape {a.shape}"))
    # An infinity equals itself, though their difference is NaN.
    with np.errstate(invalid="ignore"):
        apart = np.where(a == b, 0.0, np.abs(a - b))
    worst = float(apart.max()) if apart.size else 0.0
    text = f"apart by {worst:.3g}, at most {within:g} allowed"
    _demand(worst <= within, f"{_label(what)}{text}")
    return Passed(f"✓ {_label(what)}{text}")


def at_most(value: float, limit: float, what: str = "") -> Passed:
    """Check that a number is not above a limit; NaN is.

    Examples
    --------
    >>> at_most(1.1, 2, "R of the last layer")
    ✓ R of the last layer: 1.1 <= 2
    """
    _demand(value <= limit, _lines(what, f"at most {limit:g}", f"{value:.4g}"))
    return Passed(f"✓ {_label(what)}{value:.4g} <= {limit:g}")


def at_least(value: float, limit: float, what: str = "") -> Passed:
    """Check that a number is not below a limit; NaN is.

    Examples
    --------
    >>> at_least(295.0, 8, "R of HF32")
    ✓ R of HF32: 295 >= 8
    """
    _demand(value >= limit, _lines(what, f"at least {limit:g}", f"{value:.4g}"))
    return Passed(f"✓ {_label(what)}{value:.4g} >= {limit:g}")


def contains(text: Container[Any], part: object, what: str = "") -> Passed:
    """Check that ``part`` is in a text, list or dict.

    Examples
    --------
    >>> contains(["conv1", "bn1"], "bn1", "layers")
    ✓ layers: holds 'bn1'
    """
    _demand(part in text, _lines(what, f"{part!r} in it", _cut(repr(text))))
    return Passed(f"✓ {_label(what)}holds {part!r}")


def ok(result: _HasFindings, what: str = "") -> Passed:
    """Check that a result found nothing of level error."""
    said = "; ".join(f"{f.what} ({f.where})" for f in result.findings if f.level == "error")
    _demand(result.ok, f"{_label(what)}{result!r} is not ok: {said or 'see its rows'}")
    return Passed(f"✓ {_label(what)}{result!r}")


def raises(error: type[BaseException], call: Callable[[], Any], says: str = "") -> Passed:
    """Check that ``call()`` raises ``error`` with ``says`` in its text.

    Examples
    --------
    >>> raises(ZeroDivisionError, lambda: 1 / 0, "division")
    ✓ ZeroDivisionError: division by zero
    """
    try:
        value = call()
    except error as caught:
        text = str(caught)
        _demand(says in text, _lines(error.__name__, f"{says!r} in its text", text))
        first = text.splitlines()[0] if text else ""
        return Passed(f"✓ {type(caught).__name__}: {first}")
    raise AssertionError(f"expected {error.__name__}, but it returned {_cut(repr(value))}")


def _array(value: Any) -> Any:
    import numpy as np

    # bfloat16 has no NumPy counterpart, and a tensor may be on a device or want gradients.
    if hasattr(value, "detach"):
        wide = "cdouble" if value.is_complex() else "double"
        value = getattr(value.detach().cpu(), wide)().numpy()
    return np.asarray(value, dtype=np.complex128 if np.iscomplexobj(value) else np.float64)


def _demand(condition: bool, message: str) -> None:
    if not condition:
        raise AssertionError(message)


def _lines(what: str, expected: str, actual: str) -> str:
    return f"{what or 'not as expected'}\n  expected: {expected}\n  found:    {actual}"


def _label(what: str) -> str:
    return f"{what}: " if what else ""


def _cut(text: str, limit: int = 300) -> str:
    return text if len(text) <= limit else text[:limit] + " …"
