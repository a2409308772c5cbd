"""Breadth first through every reachable state, to the first broken guarantee and the shortest way there."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field

from . import invariants
from .moves import OUTSIDE, Label, Moves, State
from .world import World, scaled

STATES_MAX = 3_000_000


class TooLarge(Exception):
    """The world has more states than a search may keep."""


@dataclass
class Found:
    states: int = 0
    moves: int = 0
    seconds: float = 0.0
    broken: str | None = None
    trace: list[str] = field(default_factory=list)
    turns: set[tuple[str, str, str]] = field(default_factory=set)
    """What happened at all: a move, and how its message stood before and after."""
    searched: Moves | None = None

    def __str__(self) -> str:
        lines = [f"{self.states} states, {self.moves} moves, {self.seconds:.1f} s: {self.broken or 'holds'}"]
        return "\n    ".join([*lines, *self.trace])


def search(world: World, *, live: bool = True, states_max: int = STATES_MAX) -> Found:
    """Everything that can happen in `world`; `live` also asks whether each state can still come to rest."""
    began = time.monotonic()
    with scaled(world):
        found = _search(Moves(world), live, states_max)
    found.seconds = time.monotonic() - began
    return found


def _search(moves: Moves, live: bool, states_max: int) -> Found:
    first = moves.first()
    numbers: dict[State, int] = {first: 0}
    states = [first]
    came: list[tuple[int, Label]] = [(-1, ())]
    back: dict[int, list[int]] = defaultdict(list)
    found = Found(searched=moves)
    intents = moves.book.states
    turns: set[tuple[str | int, int, int]] = set()

    def ends(broken: str, at: int, last: Label | None = None) -> Found:
        trace = [] if last is None else [last]
        while at > 0:
            at, label = came[at]
            trace.append(label)
        found.broken, found.states = broken, len(states)
        found.trace = [" ".join(map(str, label)) for label in reversed(trace)]
        return found

    at = 0
    while at < len(states):
        state = states[at]
        for label, after, broken in moves.after(state):
            found.moves += 1
            for old, new in zip(state.intents, after.intents, strict=True):
                if old != new and (label[0], old, new) not in turns:
                    turns.add((label[0], old, new))
                    broken = broken or invariants.overwritten(intents[old], intents[new])
            if broken is not None:
                return ends(broken, at, label)
            after = moves.canonical(after)
            number = numbers.get(after)
            if number is None:
                number = numbers[after] = len(states)
                states.append(after)
                came.append((at, label))
                broken = invariants.broken(moves, after)
                if broken is not None:
                    return ends(broken, number)
            if live and number != at and label[0] not in OUTSIDE:
                back[number].append(at)
        at += 1
        if len(states) > states_max:
            raise TooLarge(f"{len(states)} states, {at} of them searched")
    found.states = len(states)
    stage = invariants.stage
    found.turns = {(str(verb), stage(intents[old]), stage(intents[new])) for verb, old, new in turns}
    if live:
        stuck = _stuck(moves, states, back)
        if stuck is not None:
            return ends("LIVE it neither ends nor waits for a person", stuck)
    return found


def _stuck(moves: Moves, states: list[State], back: dict[int, list[int]]) -> int | None:
    """The first state from which no move that may be counted on leads to rest."""
    rests = bytearray(len(states))
    edge = [number for number, state in enumerate(states) if invariants.settled(moves, state)]
    for number in edge:
        rests[number] = 1
    while edge:
        for number in back[edge.pop()]:
            if not rests[number]:
                rests[number] = 1
                edge.append(number)
    return next((number for number, rest in enumerate(rests) if not rest), None)
