"""A dispatch mode that thinks once about each operator, not at every call."""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class PlannedMode(TorchDispatchMode):
    """What is known of an operator from its schema alone is worked out at its first call.

    Whoever inherits writes ``_plan(func)`` and asks for it with ``_planned(func)``.
    """

    # torch.cond, flex_attention: without this torch refuses to run them inside a mode.
    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._plans: dict[Any, Any] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Its guard costs as much as all the rest of a rehearsal, which compiles nothing.
        return False

    def _plan(self, func: Any) -> Any:
        raise NotImplementedError

    def _planned(self, func: Any) -> Any:
        plan = self._plans.get(func)
        if plan is None:
            plan = self._plans[func] = self._plan(func)
        return plan
