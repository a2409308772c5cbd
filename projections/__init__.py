"""What it means now: one view a file, with its table, the rows of a state, and typed reads."""

from __future__ import annotations

import os
from collections.abc import Callable

from ..ledger.errors import CannotOpen
from ..ledger.store.rebuild import outdated
from ..ledger.store.store import Store
from .cursors import CursorsView
from .inbound import InboundView
from .intents import IntentsView
from .media import MediaView
from .receipts import ReceiptsView
from .sessions import SessionSpansView, SessionsView
from .workers import WorkersView

VIEWS = (
    IntentsView(),
    ReceiptsView(),
    MediaView(),
    WorkersView(),
    InboundView(),
    SessionsView(),
    SessionSpansView(),
    CursorsView(),
)
"""The views that every ledger keeps."""


def open_to_read(path: str | os.PathLike[str], wall_ms: Callable[[], int]) -> Store:
    """A ledger that is there, without a writer. Raises a `CannotOpen`, also where its views are another version's:
    who only reads cannot make them anew."""
    store = Store.open(path, VIEWS, wall_ms=wall_ms, create=False, read_only=True)
    try:
        if other := [view.name for view in store.read_sync(outdated, VIEWS)]:
            raise CannotOpen(
                f"{store.path}: {', '.join(other)} stand at another version of msgledger, or are being made anew:"
                " run `msgledger rebuild`, or start a gateway of this version"
            )
    except BaseException:
        store.close()
        raise
    return store
