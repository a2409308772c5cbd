"""Functions that alone can send one message each, from a callback-only target or a gateway's own dispatcher.

They are memory of this process. Whoever finds such a message later never sends it some other way: it ends, with the
reason that its callback is gone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping

from ...adapters.gate import Account
from ...adapters.surface import Channel
from ...ledger.intent import IntentState, Status
from ...ledger.limits import CALLBACKS_MAX


class Callbacks:
    """One per dispatcher. Each is wrapped as the channel of its message."""

    def __init__(self, channels: Mapping[Account, Channel], *, worker: str, is_dead: Callable[[str], bool]) -> None:
        self._channels = channels
        self._worker = worker
        self._is_dead = is_dead
        self._kept: OrderedDict[str, Channel] = OrderedDict()

    def keep(self, intent: str, channel: Channel) -> None:
        """From before the record until the intent has ended."""
        self._kept[intent] = channel
        while len(self._kept) > CALLBACKS_MAX:
            self._kept.popitem(last=False)

    def drop(self, intent: str) -> None:
        self._kept.pop(intent, None)

    def channel(self, state: IntentState) -> Channel | None:
        """What may send it, or look it up; None where nothing here may."""
        if state.callback is None or state.status is not Status.PENDING:
            return self._channels.get((state.channel, state.account))
        return self._kept.get(state.id)

    def gone(self, state: IntentState) -> bool:
        """Whether the only function that may send it is no more."""
        if state.callback is None or state.id in self._kept:
            return False
        return state.callback == self._worker or self._is_dead(state.callback)
