"""Named points at which a test kills the process, to show what a crash there leaves behind. Free in production.

`MSGLEDGER_CRASH_AT=<name>` kills at the first time the point is passed, `<name>:<n>` at the n-th. The environment is
read once, at import. A point never does anything but kill: no cleaning up, no message, as a power cut would.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Final

OUTBOUND: Final = (
    # ledger/store: the writer
    "before-begin",
    "after-begin",
    "after-insert",
    "before-commit",
    "after-commit",
    "before-wake",
    # lifecycle: a send, an attempt, a look-up
    "before-record",
    "after-record",
    "before-deliver",
    "after-prepare",
    "after-deliver",
    "after-fact",
    "after-look-up",
)
INBOUND: Final = (
    # lifecycle: an event that comes in, its turn, and the cursor
    "after-normalize",
    "after-gate",
    "before-inbound",
    "after-inbound",
    "before-dispatch",
    "after-dispatch",
    "after-handler",
    "after-completion",
    "before-acknowledge",
    "before-advance",
    "after-advance",
)
POINTS: Final = OUTBOUND + INBOUND
"""Every name that the code uses; a test fails if one is never hit."""


def _armed(name: str, hits: int) -> Callable[[str], None]:
    left = hits

    def kill(point: str) -> None:
        nonlocal left
        if point == name:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    return kill


def _free(point: str) -> None:
    """Nobody asked for a crash."""


def _chosen(setting: str) -> Callable[[str], None]:
    if not setting:
        return _free
    name, _, hits = setting.partition(":")
    if name not in POINTS:
        raise ValueError(f"MSGLEDGER_CRASH_AT names {name!r}, which is no crash point; there are: {', '.join(POINTS)}")
    return _armed(name, int(hits or 1))


crash_point: Final = _chosen(os.environ.get("MSGLEDGER_CRASH_AT", ""))
"""`crash_point(name)`: dies here if this is the point that was asked for."""
