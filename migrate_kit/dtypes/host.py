"""Which calls of a model the NPU does not compute: they run in the host's own arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from migrate_kit.dtypes.coverage import dtypes_of
from migrate_kit.dtypes.lines import LOSS, UserCode, module_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType

    from migrate_kit.dtypes.coverage import OpRecord

# A refused operator ends the run there; whoever goes on moves it to the host.
_ELSEWHERE: Final = ("fallback", "refused")


class OnHost:
    """The calls of one look at a model that leave the NPU.

    The tables decide by operator and dtypes, so that is what a call is known by. A composite
    operator, which an NPU has whole, has been taken apart when the numbers are rehearsed: its parts
    are those on its line and in its module that the look did not see there themselves.

    Parameters
    ----------
    records : iterable of OpRecord
        What the look recorded.
    names : dict of int to str, optional
        The names of the modules by their ``id``.
    """

    def __init__(
        self, records: Iterable[OpRecord] = (), names: dict[int, str] | None = None
    ) -> None:
        self._records = list(records)  # they keep the code alive whose ids are used
        gone = [r for r in self._records if r.verdict.status in _ELSEWHERE]
        self._calls = {(r.op, r.dtypes) for r in gone}
        self._names = {r.op for r in gone}
        self._places = {_place(r) for r in gone if not r.backward and _is_composite(r.op)}
        self._seen = {(r.op, r.dtypes, _place(r)) for r in self._records if not r.backward}
        self._user, self._modules = UserCode(), dict(names or {})

    @property
    def in_parts(self) -> bool:
        """Whether something that the NPU has whole is taken apart, so that lines count."""
        return bool(self._places)

    def knows(self, name: str) -> bool:
        """Whether an operator of this name leaves the NPU on some dtypes."""
        return name in self._names

    def runs(self, name: str, args: Any, kwargs: dict[str, Any], frame: FrameType | None) -> bool:
        """Whether the host runs this call, made from below ``frame``."""
        dtypes = tuple(str(d).removeprefix("torch.") for d in dtypes_of(args, kwargs))
        if (name, dtypes) in self._calls:
            return True
        if not self._places:
            return False
        user = self._user.frame(frame)
        line = (0, 0) if user is None else (id(user.f_code), user.f_lineno)
        place = (*line, module_of(frame, self._modules) or LOSS)
        return place in self._places and (name, dtypes, place) not in self._seen


def _place(record: OpRecord) -> tuple[int, int, str]:
    code, line, module = record.where
    return (0, 0, module) if code is None else (id(code), line, module)


def _is_composite(op: str) -> bool:
    found: Any = torch.ops
    try:
        for part in op.split("."):
            found = getattr(found, part)
        return bool(
            torch._C._dispatch_has_kernel_for_dispatch_key(  # noqa: SLF001
                found.name(), "CompositeImplicitAutograd"
            )
        )
    except (AttributeError, RuntimeError, TypeError):
        return False
