"""From a message to an intent that is ready to be recorded. Everything that can be refused is refused here, before
anything is written or sent, with the value and the way out.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice
from typing import Literal

import msgspec
from msgspec.structs import replace

from ..adapters.external import whole
from ..adapters.surface import Channel, RenderContext, is_external
from ..ledger import events as e
from ..ledger import life
from ..ledger.codec import as_json, to_json
from ..ledger.dossier import Dossier, contents, receipt_of
from ..ledger.errors import InvalidMedia, InvalidMessage, UnknownChannel
from ..ledger.limits import (
    AGE_BROADCAST_MS,
    AGE_FOLLOWUP_MS,
    AGE_REPLY_MS,
    AGE_SYSTEM_MS,
    ATTEMPTS_MAX,
    KEY_MAX_BYTES,
    ORIGIN_TAG_MAX_BYTES,
    PLACES_REMEMBERED,
    RUNS_REMEMBERED,
    TEXT_MAX_BYTES,
    UNITS_MAX,
)
from ..ledger.message import Followup, Message, RenderedBatch, RenderedUnit, Reply, Target
from ..ledger.origin import NO_ORIGIN, Origin
from ..ledger.pseudonym import Pseudonyms, join
from ..ledger.store.clock import Clock, new_id

Durable = Literal["required", "best_effort", "disabled"]

MAX_AGE_MS = {
    "reply": AGE_REPLY_MS,
    "followup": AGE_FOLLOWUP_MS,
    "broadcast": AGE_BROADCAST_MS,
    "system": AGE_SYSTEM_MS,
}


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller may say of one send. Times in seconds.

    `key`: the same key with the same content returns the intent that stands. `producer` and `run` give a key to work
    that may run again: the n-th send of the run is recorded once, and its first content stands.
    """

    key: str | None = None
    producer: str | None = None
    run: str | None = None
    ordinal: int | None = None
    session: str | None = None
    inbound: str | None = None
    """The inbound message in whose turn it is sent: with `ordinal` it gives a key, and the first content stands."""
    durability: Durable = "required"
    on_unknown: e.OnUnknown = "hold"
    ordered: bool = True
    max_attempts: int = ATTEMPTS_MAX
    max_age_s: float | None = None
    not_before: int | None = None
    traceparent: str | None = None
    hooks: tuple[str, ...] = ()
    wait: bool = True
    timeout_s: float | None = None
    parts: tuple[Message, ...] = ()
    """Each rendered by itself into the one batch of this intent; the message is all of them joined."""
    external: bool = False
    """The gateway sends it by itself, over a channel that only keeps the books."""
    callback: bool = False
    """Only a function in this process may send it."""


class Planned(msgspec.Struct, frozen=True):
    """A message that is ready to be recorded."""

    channel: Channel
    dossier: Dossier
    event: e.IntentRecorded
    key: str
    given: bool
    """Whether the caller gave the key: then other content is a conflict."""
    fresh: bool
    """Whether the key was made for this message alone, so that nobody can have used it."""


class Planner:
    """Makes plans for the channels of one gateway."""

    def __init__(
        self, channels: dict[tuple[str, str], Channel], pseudonyms: Pseudonyms, *, worker: str, clock: Clock
    ) -> None:
        self.channels = channels
        self.pseudonyms = pseudonyms
        self.clock = clock
        self.worker = worker
        self.by = f"gateway:{worker}"
        self._ordinals: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._places: OrderedDict[tuple[str, Target], tuple[str, str]] = OrderedDict()

    def plan(self, message: Message, options: Options, action: e.Action = "send", of: Dossier | None = None) -> Planned:
        """Render and check. Raises `InvalidMessage` with the value and the way out."""
        content = _readable(message, options)
        channel = self.channel(message)
        at = self.clock.wall_ms()
        stream = new_id(at)
        _reachable(channel, message, options)
        batch = self._render(channel, message, RenderContext(at=at, intent=stream, action=action), action, of, options)
        if options.on_unknown == "hold" and batch.marked:
            batch = replace(batch, marked=())  # no copy will ever go out
        elif options.on_unknown == "at_least_once" and action == "send":
            _copyable(batch, channel.name)
        key, given = self.key(options, stream)
        pseudonyms = self.pseudonyms
        relation = message.relation
        lane, place = self._where(channel.account, message.target)
        session = options.session or (relation.session if isinstance(relation, Followup) else None)
        event = e.IntentRecorded(
            at=at,
            by=self.by,
            key=key if key == stream else pseudonyms.key(key),
            content_mac=pseudonyms.mac("content", action, None if of is None else of.state.id, content),
            action=action,
            of=None if of is None else of.state.id,
            channel=channel.name,
            account=channel.account,
            lane=lane if options.ordered else pseudonyms.lane(channel.account, message.target, stream),
            place=place,
            relation=type(relation).__name__.lower(),
            origin=_stated(message.origin),
            session=None if session is None else pseudonyms.session(session),
            inbound=options.inbound or (relation.inbound if isinstance(relation, Reply) else None),
            durability="best_effort" if options.durability == "best_effort" else "required",
            policy=self._policy(message, options, at),
            units=e.planned(batch.units),
            atomicity=batch.atomicity,
            producer=options.producer,
            run=options.run,
            traceparent=options.traceparent,
            hooks=options.hooks,
            not_before=options.not_before,
            callback=self.worker if options.callback else None,
            content=self._content(key, message, batch, action, of),
        )
        state = life.record(stream, event, 0, at)
        kept = event.content
        dossier = Dossier(
            state=state,
            key=key,
            message=message,
            batch=batch,
            of_platform_id=None if kept is None else kept.of_platform_id,
            of_token=None if kept is None else kept.of_token,
        )
        return Planned(channel, dossier, event, key, given=given, fresh=key == stream)

    def _where(self, account: str, target: Target) -> tuple[str, str]:
        """Lane and place of a target; those of the last conversations are remembered."""
        known = self._places.get((account, target))
        if known is None:
            known = (self.pseudonyms.lane(account, target), self.pseudonyms.place(target))
            self._places[account, target] = known
            if len(self._places) > PLACES_REMEMBERED:
                self._places.popitem(last=False)
        return known

    def channel(self, message: Message) -> Channel:
        name = message.target.channel
        mine = [account for channel, account in self.channels if channel == name]
        account = message.account or (mine[0] if len(mine) == 1 else "default")
        channel = self.channels.get((name, account))
        if channel is not None:
            return channel
        if mine:
            raise UnknownChannel(f"channel {name!r} has no account {account!r}: it has {', '.join(sorted(mine))}")
        there = ", ".join(sorted({channel for channel, _ in self.channels})) or "none"
        raise UnknownChannel(f"no channel {name!r} is configured: there is {there}")

    def _render(
        self,
        channel: Channel,
        message: Message,
        context: RenderContext,
        action: e.Action,
        of: Dossier | None,
        options: Options,
    ) -> RenderedBatch:
        if not message.target.id.strip():
            raise InvalidMessage(f"the target on channel {channel.name!r} has no id: say where the message goes")
        if len(message.target.id.encode("utf-8", "replace")) > KEY_MAX_BYTES:
            raise InvalidMessage(f"target id {message.target.id[:80]!r}... is longer than {KEY_MAX_BYTES} bytes")
        if message.direction != "outbound":
            raise InvalidMessage(f"a message of direction {message.direction!r} cannot be sent: make it outbound")
        if action == "delete" and of is not None:
            receipt = receipt_of(of.state, of.details)
            assert receipt is not None
            parts = [part for part in receipt.parts if part.platform_id is not None]
            return RenderedBatch(
                tuple(
                    RenderedUnit(i, "unknown", payload={"platform_id": part.platform_id, "token": part.delete_token})
                    for i, part in enumerate(parts)
                )
            )
        batch = whole(message) if options.callback else _rendered(channel, message, context, options.parts)
        units = batch.units
        if not units:
            raise InvalidMessage(f"channel {channel.name!r} rendered the message into nothing: give it a text")
        if len(units) > UNITS_MAX:
            raise InvalidMessage(f"the message becomes {len(units)} messages, the most is {UNITS_MAX}: shorten it")
        if [unit.index for unit in units] != list(range(len(units))):
            raise InvalidMessage(f"channel {channel.name!r} numbered its units {[unit.index for unit in units]}")
        if action == "edit" and len(units) != 1:
            raise InvalidMessage(f"the new text becomes {len(units)} messages, an edit changes one: shorten it")
        return batch

    def key(self, options: Options, stream: str) -> tuple[str, bool]:
        """A derived key never swallows a message: without a source it is fresh."""
        if options.key is not None:
            if not options.key or len(options.key.encode("utf-8", "replace")) > KEY_MAX_BYTES:
                raise InvalidMessage(f"key {options.key[:80]!r} must have 1 to {KEY_MAX_BYTES} bytes")
            return options.key, True
        if options.inbound is not None and options.ordinal is not None and options.producer is None:
            return join("turn", options.inbound, str(options.ordinal)).decode(), False
        if options.producer is None and options.run is None:
            return stream, False
        if options.producer is None or options.run is None:
            raise InvalidMessage("producer and run go together: one of them alone names no piece of work")
        ordinal = self.numbered(options).ordinal
        return join("run", options.producer, options.run, str(ordinal)).decode(), False

    def numbered(self, options: Options) -> Options:
        """With its place in the run said, where it has one: it is taken, whatever becomes of the message."""
        if options.producer is None or options.run is None or options.ordinal is not None:
            return options
        source = (options.producer, options.run)
        ordinal = self._ordinals.pop(source, 0)
        self._ordinals[source] = ordinal + 1
        while len(self._ordinals) > RUNS_REMEMBERED:
            self._ordinals.popitem(last=False)
        return replace(options, ordinal=ordinal)

    def _policy(self, message: Message, options: Options, at: int) -> e.Policy:
        age_ms = MAX_AGE_MS[type(message.relation).__name__.lower()]
        if options.max_age_s is not None:
            age_ms = int(options.max_age_s * 1000)
        if age_ms <= 0 or options.max_attempts < 1:
            raise InvalidMessage(
                f"max_age_s {options.max_age_s} and max_attempts {options.max_attempts} must be positive"
            )
        return e.Policy(
            max_attempts=options.max_attempts,
            expires_at=max(at, options.not_before or 0) + age_ms,
            ordered=options.ordered,
            on_unknown=options.on_unknown,
        )

    def _content(
        self, key: str, message: Message, batch: RenderedBatch, action: e.Action, of: Dossier | None
    ) -> e.RecordedContent:
        content = contents(key, message, batch)
        if of is None:
            return content
        receipt = receipt_of(of.state, of.details, of.sent_at)
        assert receipt is not None
        primary = next(part for part in receipt.parts if part.platform_id is not None)
        token = primary.delete_token if action == "delete" else primary.edit_token
        return replace(content, of_platform_id=primary.platform_id, of_token=token)


def _reachable(channel: Channel, message: Message, options: Options) -> None:
    """What only a callback or the gateway itself can deliver is never sent in another way."""
    if options.callback:
        return
    if is_external(channel) and not options.external:
        raise InvalidMessage(
            f"channel {channel.name!r} is sent on by its gateway alone: use `record`, `attempting`, `delivered` and"
            " `failed`, or configure a channel that can deliver"
        )
    if options.external and not is_external(channel):
        raise InvalidMessage(
            f"channel {channel.name!r} is sent on by msgledger: use `send`, or configure `External({channel.name!r})`"
        )
    if not message.target.replayable:
        raise InvalidMessage(
            f"the target on channel {channel.name!r} is reached by the callback that came with it alone: hand that over"
            " with `gateway.bridge(...)`, or give a target that can be sent to at any time"
        )


def _rendered(channel: Channel, message: Message, context: RenderContext, parts: tuple[Message, ...]) -> RenderedBatch:
    """The batch of a message, or of its parts one behind the other, with the message's own files."""
    if not parts:
        return channel.render(message, context)
    files = iter(message.attachments)
    batches = [
        channel.render(replace(part, attachments=tuple(islice(files, len(part.attachments)))), context)
        for part in parts
    ]
    units: list[RenderedUnit] = []
    marked: list[RenderedUnit] = []
    for batch in batches:
        marked += [replace(copy, index=len(units) + copy.index) for copy in batch.marked]
        units += [replace(unit, index=len(units) + at) for at, unit in enumerate(batch.units)]
    return RenderedBatch(tuple(units), batches[0].atomicity, tuple(marked))


def _stated(origin: Origin) -> Origin:
    """Of its origin, what is a fact: a tag that another gateway worded is content."""
    return origin if origin.opaque is None else NO_ORIGIN


def _copyable(batch: RenderedBatch, channel: str) -> None:
    """A copy that may be one too many carries the visible marker, so each unit needs its marked form."""
    bare = {unit.index for unit in batch.units} - {copy.index for copy in batch.marked}
    if bare:
        raise InvalidMessage(
            f"channel {channel!r} renders no marked copy of unit {min(bare)}, which at_least_once needs:"
            " have it render one (`RenderedBatch.marked`), or let an unknown outcome be held"
        )


def _readable(message: Message, options: Options) -> bytes:
    """The message as JSON, once it is sure that it and all that goes with it can be written down.

    Where the caller gives the key, equal messages give equal bytes: they are compared.
    """
    body = message.body
    if body is not None and len(body.text) > TEXT_MAX_BYTES:
        raise InvalidMessage(
            f"the text has {len(body.text)} characters, the most is {TEXT_MAX_BYTES} bytes: attach it as a file"
        )
    if message.origin.opaque is not None and len(as_json(message.origin.opaque)) > ORIGIN_TAG_MAX_BYTES:
        raise InvalidMessage(
            f"the message's origin is an unknown tag of more than {ORIGIN_TAG_MAX_BYTES} bytes: give another `origin`"
        )
    for file in message.attachments:
        if file.data is not None or (file.path is not None and file.may_copy):
            raise InvalidMedia(f"no copy was made of {file.name[:80]!r}: what is recorded names no path and no content")
    try:
        as_json((options.key, options.producer, options.run, options.session, options.traceparent, options.hooks))
        return to_json(message) if options.key is not None else as_json(message)
    except UnicodeEncodeError as error:
        start = error.object[max(0, error.start - 20) : error.start + 20]
        raise InvalidMessage(f"{start!r} holds a lone surrogate: decode it properly before sending") from error
    except TypeError as error:
        raise InvalidMessage(f"the message cannot be written as JSON ({error}): see its `raw`") from error
