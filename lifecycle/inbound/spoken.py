"""Reading a conversation page by page, so that no read holds up the dispatcher's own."""

from __future__ import annotations

from typing import Final

from ...ledger.errors import InvalidQuery, NoSuchStream
from ...ledger.limits import HISTORY_MAX
from ...ledger.store.store import Store
from ...projections.as_of import Cut
from ...projections.conversation import PAGE_STREAMS, Entry, bounds, page
from ...projections.query import number_of, position_of

HISTORY_USUAL: Final = 200
"""How many entries of a conversation are given where no number is said."""


async def spoken(
    store: Store,
    name: str,
    *,
    limit: int = HISTORY_USUAL,
    before: int | None = None,
    cut: Cut | None = None,
    everything: bool = False,
) -> list[Entry]:
    """The newest entries of the session of that name, oldest first. See `Reads.history`."""
    if not 1 <= number_of("limit", limit, "number of entries") <= HISTORY_MAX:
        raise InvalidQuery(f"limit: {limit} is not between 1 and {HISTORY_MAX}: ask in pages with `before`")
    try:
        digest = store.pseudonyms.session(name)
    except UnicodeEncodeError:
        raise NoSuchStream(f"no session {name[:80]!a}: a lone surrogate stands in no name") from None
    known = None if before is None else position_of("before", before)
    key, low, high = await store.read(bounds, name, digest, known, cut, everything)
    found: list[Entry] = []
    while len(found) < limit:
        part = await store.read(page, key, low, high, min(PAGE_STREAMS, limit - len(found)), cut)
        found = [*part.entries, *found]
        if part.before is None:
            break
        high = part.before
    return found
