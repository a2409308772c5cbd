"""The worlds that are searched: `SMALL` in every test run, `LARGE` by `python -m tests.model.run --all`.

In a small world the second message is tried once: it is there to be overtaken. All are of one lane.
"""

from __future__ import annotations

from .world import World

ONE = {"messages": 1}
BATCH = {"messages": 1, "required": (True, True)}
SKEWED = {"one_host": False, "ahead": (0, 1), "clock_bound": 1}

SMALL: dict[str, World] = {
    "neither key nor look-up": World(),
    "connections fail, rejections are final": World(unreachable=True, refuses=True, crashes=0),
    "graceful stop": World(**ONE, stops=1),
    "cancel": World(cancels=1, attempts=(2, 1)),
    "expiry": World(expires=3, attempts=(2, 1)),
    "expiry with a look-up": World(**ONE, expires=3, reconciles=True),
    "look-up": World(reconciles=True, attempts=(2, 1)),
    "look-up that lags": World(**ONE, reconciles=True, lag=1, crashes=2),
    "look-up without proof of absence": World(**ONE, reconciles=True, proves_absence=False, checks=2),
    "window": World(window=4, attempts=(2, 1), crashes=0),
    "window and three attempts": World(**ONE, window=5, max_attempts=3, crashes=0),
    "window and look-up": World(**ONE, window=6, reconciles=True),
    "rotated credential": World(**ONE, window=5, credentials=("a", "b")),
    "another rendering": World(**ONE, window=5, bytes_=("a", "b")),
    "at least once": World(**ONE, at_least_once=True, max_attempts=3),
    "at least once with a look-up": World(**ONE, at_least_once=True, reconciles=True, max_attempts=3),
    "a person": World(verdicts=1, attempts=(2, 1), crashes=0),
    "batch": World(**BATCH, crashes=2),
    "batch with a look-up": World(**BATCH, reconciles=True),
    "batch with a window": World(**BATCH, window=4, attempts=(2, 1)),
    "batch and people": World(**BATCH, verdicts=1, cancels=1),
    "batch with an optional part first": World(messages=1, required=(False, True), refuses=True, reconciles=True),
    "batch of best effort": World(**BATCH, atomicity="best_effort_parts", refuses=True),
    "two hosts": World(**SKEWED, **ONE, reconciles=True),
    "two hosts and a window": World(**SKEWED, **ONE, window=6, attempts=(2,)),
    "two hosts and a person": World(**SKEWED, verdicts=1, attempts=(1, 1), crashes=0, rejects=False),
    "a clock far ahead": World(**ONE, one_host=False, ahead=(0, 5), reconciles=True, attempts=(2,), crashes=0),
}

LARGE: dict[str, World] = {
    "neither key nor look-up": World(attempts=(3, 3), crashes=2),
    "look-up": World(reconciles=True, attempts=(3, 2)),
    "look-up that lags": World(reconciles=True, lag=1),
    "look-up without proof of absence": World(reconciles=True, proves_absence=False, checks=2),
    "window": World(window=6),
    "window and look-up": World(window=5, reconciles=True),
    "rotated credential": World(window=5, credentials=("a", "b")),
    "at least once": World(at_least_once=True),
    "at least once with a look-up": World(at_least_once=True, reconciles=True, max_attempts=3),
    "people": World(verdicts=1, cancels=1, reconciles=True),
    "expiry with a window": World(expires=3, window=5, attempts=(2, 1)),
    "batch with a window": World(**BATCH, window=6, reconciles=True),
    "batch at least once": World(**BATCH, at_least_once=True),
    "batch, people, stops": World(**BATCH, reconciles=True, verdicts=1, cancels=1, stops=1),
    "two lists of parts": World(required=(True, True), attempts=(2, 1)),
    "two hosts": World(**SKEWED, reconciles=True),
    "two hosts and a window": World(**SKEWED, window=7),
    "two hosts, a window, one message": World(**SKEWED, **ONE, window=7),
    "two hosts and a person": World(**SKEWED, verdicts=1, attempts=(2, 1)),
    "a clock far ahead": World(one_host=False, ahead=(0, 5), reconciles=True, attempts=(2, 1), crashes=0),
}
