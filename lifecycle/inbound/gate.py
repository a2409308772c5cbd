"""The echo gate: what of our own comes in again, what is another gateway's failure, and bots that answer each other.

It stands before the gateway's own rule, decides by ids, labels and tags that are durable, and never cuts off a person.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict

import msgspec

from ...adapters.calls import intent_of
from ...adapters.receiving import Incoming
from ...adapters.surface import Channel
from ...ledger import inbound_events as i
from ...ledger.dossier import Dossier, compile_dossier
from ...ledger.echo import BotPolicy, is_echo, is_operational, same_words
from ...ledger.fold import HeldStream
from ...ledger.intent import Status
from ...ledger.limits import ECHO_WAIT_S, PLACES_REMEMBERED
from ...ledger.pseudonym import Pseudonyms
from ...ledger.source import SessionSource
from ...ledger.store.clock import Clock
from ...ledger.store.history import history
from ...ledger.store.sql import Cursor
from ...ledger.store.store import Store
from ...projections.echoes import bot_turns, is_ours, on_their_way, was_sent

log = logging.getLogger("msgledger")


class Drop(msgspec.Struct, frozen=True):
    """Why no turn begins."""

    reason: i.DropReason
    note: str | None = None


class _Asked(msgspec.Struct, frozen=True):
    """What the ledger is asked of one message."""

    channel: str
    account: str
    place: str
    message_id: str | None
    intent: str | None
    """Whose label it bears."""
    text: str
    since: int


class _Seen(msgspec.Struct, frozen=True):
    own: bool
    flying: tuple[str, ...] = ()
    """Intents that say the same there, with a request on its way."""
    doubted: tuple[str, ...] = ()
    """The same, of which nobody knows whether they were sent."""


class Gate:
    """One per gateway. Raises `InvalidConfig` for a policy that cannot be."""

    def __init__(self, store: Store, policy: BotPolicy, *, clock: Clock) -> None:
        policy.check()
        self._store = store
        self._policy = policy
        self._clock = clock
        self._blown: OrderedDict[str, None] = OrderedDict()

    async def judge(self, channel: Channel, incoming: Incoming) -> Drop | None:
        """Why no turn may begin with it; None where that is for the gateway's own rule to say."""
        source, origin = incoming.source, incoming.message.origin
        if incoming.own:
            return Drop("own")
        asked = self._asked(channel, incoming)
        seen = await self._store.read(_seen, asked)
        if seen.own:
            return Drop("own")
        if is_echo(bot=source.is_bot, place=source.kind, origin=origin):
            return Drop("echo", origin.code)
        if is_operational(bot=source.is_bot, origin=origin):
            return Drop("echo", origin.source)
        if seen.flying or seen.doubted:
            ours = await self._on_its_way(asked, seen, source)
            if ours is not None:
                return ours
        if source.is_bot and incoming.addressed:
            return await self._bounded(asked.place, sender_of(self._store.pseudonyms, source))
        return None

    def _asked(self, channel: Channel, incoming: Incoming) -> _Asked:
        message = incoming.message
        return _Asked(
            channel.name,
            channel.account,
            self._store.pseudonyms.place(message.target),
            message.id,
            None if incoming.label is None else intent_of(incoming.label),
            "" if message.body is None else message.body.text,
            self._clock.wall_ms() - int(channel.capabilities.echo_horizon_s * 1000),
        )

    async def _on_its_way(self, asked: _Asked, seen: _Seen, source: SessionSource) -> Drop | None:
        """It says what a message of ours says that is on its way there. The receipt tells, so it is waited for.

        Where none comes, equal words decide about a bot's message and a nameless one alone: a person may say the same.
        """
        news = asyncio.Event()
        stops = (self._store.on_commit(lambda _: news.set()), self._store.on_foreign_commit(news.set))
        ends = self._clock.boot_ms() + int(ECHO_WAIT_S * 1000)
        try:
            while seen.flying and not seen.own and (left_ms := ends - self._clock.boot_ms()) > 0:
                await self._clock.wait(news, left_ms / 1000)
                news.clear()
                seen = await self._store.read(_seen, asked)
        finally:
            for stop in stops:
                stop()
        if seen.own:
            return Drop("own")
        person = not source.is_bot and source.participant is not None
        return Drop("own", "same_words") if not person and (seen.flying or seen.doubted) else None

    async def _bounded(self, place: str, sender: str | None) -> Drop | None:
        """A bot's message: within the budget of the two, and within what a place bears."""
        policy, now = self._policy, self._clock.wall_ms()
        window_ms = int(policy.pair_window_s * 1000)

        def counted(cursor: Cursor) -> tuple[int, int]:
            found = bot_turns(cursor, place, sender, now=now, window_ms=window_ms)
            return found.by_sender, found.within_a_minute

        by_sender, within_a_minute = await self._store.read(counted)
        if policy.fuse_turns_per_minute is not None and within_a_minute >= policy.fuse_turns_per_minute:
            self._blow(place, within_a_minute)
            return Drop("fuse", f"{within_a_minute} a minute")
        if place in self._blown:
            del self._blown[place]
            log.info("place %s: its fuse is whole again", place)
        if policy.pair_turns is not None and by_sender >= policy.pair_turns:
            return Drop("pair_budget", f"{by_sender} in {policy.pair_window_s:g} s")
        return None

    def _blow(self, place: str, count: int) -> None:
        if place not in self._blown:
            log.warning("place %s: %d messages of bots within a minute: its fuse is blown", place, count)
            self._blown[place] = None
            if len(self._blown) > PLACES_REMEMBERED:
                self._blown.popitem(last=False)


def sender_of(names: Pseudonyms, source: SessionSource) -> str | None:
    """The pseudonym of who wrote it."""
    who = source.sender_alt or source.sender
    return None if who is None else names.digest("sender", source.platform, source.scope, who)


def _seen(cursor: Cursor, asked: _Asked) -> _Seen:
    if asked.intent is not None and is_ours(cursor, asked.intent, asked.channel, asked.account):
        return _Seen(own=True)
    where = (asked.channel, asked.account, asked.place)
    if asked.message_id is not None and was_sent(cursor, *where, asked.message_id, asked.since):
        return _Seen(own=True)
    flying: list[str] = []
    doubted: list[str] = []
    for intent in on_their_way(cursor, *where) if asked.text.strip() else ():
        dossier = _dossier(cursor, intent)
        if dossier is not None and _says(dossier, asked.text):
            (flying if dossier.state.status is Status.SENDING else doubted).append(intent)
    return _Seen(own=False, flying=tuple(flying), doubted=tuple(doubted))


def _dossier(cursor: Cursor, intent: str) -> Dossier | None:
    """None where it cannot be read: that holds up the intent alone."""
    try:
        return compile_dossier(intent, history(cursor, intent))
    except HeldStream:
        return None


def _says(dossier: Dossier, text: str) -> bool:
    copies = () if dossier.batch is None else dossier.batch.marked
    return any(same_words(unit.text, text) for unit in (*dossier.units, *copies))
