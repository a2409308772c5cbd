"""How much is measured: in full, or so little that a test can see it run."""

from __future__ import annotations

import random
from typing import NamedTuple

PROSE = (
    "the build is green again and the report of last night lists three hosts that answered late please have a look "
    "before noon ‒ I restarted the importer, raised its limit and will tell you here when the queue is empty, naïvely "
    "about 40 minutes from now; nothing was lost and nobody needs to act 👍 thanks for waiting"
)


class Sizes(NamedTuple):
    """Numbers of one run."""

    rounds: int
    """How often each measurement takes its turn; figures are medians over them."""
    slice_s: float
    """How long one measurement sends."""
    senders: tuple[int, ...]
    small_events: int
    big_events: int
    owed: int
    opens: int
    starts: int
    """How many processes are started for each start-up time."""
    sessions: tuple[int, ...]
    """Among how many sessions one is looked for."""
    entries: int
    """Of a conversation that is read."""


FULL = Sizes(6, 0.9, (1, 10, 100), 10_000, 1_000_000, 100, 9, 11, (10, 1_000, 100_000), 200)
TINY = Sizes(2, 0.1, (1, 10, 100), 1_000, 4_000, 20, 2, 1, (10, 100), 20)


def texts(count: int = 256) -> list[str]:
    """Messages of 200 to 400 bytes, the same in every run."""
    chance = random.Random(7)
    words = PROSE.split()
    made: list[str] = []
    for _ in range(count):
        length = chance.randint(200, 395)
        text = ""
        while len(text.encode()) < length:
            text = f"{text} {chance.choice(words)}".strip()
        made.append(text.encode()[:400].decode(errors="ignore"))
    return made
