"""A ledger as an application of the `eventsourcing` library: repository, notification log, projections.

    with LedgerApplication(env={"MSGLEDGER_PATH": "ledger.db"}) as app:
        intent = app.repository.get(delivery.intent)

It reads our events and never writes one: what a gateway decides goes through `Store.append`. Aggregates of another
program, saved through it or through an application of their own, live in the same file in streams of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar, cast

from eventsourcing.application import Application, Repository, project_aggregate
from eventsourcing.persistence import EventStore, InfrastructureFactory, Mapper, Recording
from eventsourcing.utils import Environment

from .. import codec
from ..codec import Opaque
from ..errors import StreamHeld
from ..events import Event
from ..fold import State
from . import schema
from .apsw import Factory
from .datastore import Datastore
from .history import Held, events_of, fold_recorded
from .sql import Cursor
from .transcoding import LedgerMapper, refusal


class LedgerRepository(Repository[Any]):
    """Our streams as their folded states (`IntentState`, `WorkerState`), all others as aggregates."""

    def __init__(self, datastore: Datastore, event_store: EventStore[Any], **settings: Any) -> None:
        super().__init__(event_store, **settings)
        self.datastore = datastore

    def get(self, aggregate_id: Any, *, version: int | None = None, **more: Any) -> Any:
        """`version` is the last event that counts; ours begin at 0. What else it takes is for aggregates only.

        Raises `AggregateNotFoundError`, or `StreamHeld` where an event of ours cannot be read.
        """
        found = self.datastore.read(_state, str(aggregate_id), version)
        if isinstance(found, Held):
            raise StreamHeld(found.reason)
        if found is None:
            project = more.pop("projector_func", project_aggregate)
            return super().get(aggregate_id, version=version, projector_func=_strict(project), **more)
        return found


def _state(cursor: Cursor, stream: str, version: int | None) -> State | Held | None:
    """The state of a stream of ours; None where it is not ours, or has no event up to `version`."""
    if cursor.execute(schema.FIRST_TOPIC, (stream,)).get not in codec.TOPICS:
        return None
    until = schema.BEHIND_ALL if version is None else version
    events = [event for event in events_of(cursor, stream) if event.version <= until]
    return fold_recorded(stream, events) if events else None


def _strict(project: Callable[..., Any]) -> Callable[..., Any]:
    """A projector that never skips what could not be read."""

    def readable(events: Iterable[Any]) -> Iterator[Any]:
        for event in events:
            if isinstance(event, Opaque):
                raise StreamHeld(event.error)
            yield event

    def projector(aggregate: Any, events: Iterable[Any]) -> Any:
        return project(aggregate, readable(events))

    return projector


class LedgerApplication(Application[Any]):
    """Over an existing ledger, always on the persistence module of msgledger. Ids are text, as the gateway gives them.

    The environment is the one of `Factory`; to make a file that is not there, set `MSGLEDGER_CREATE` to `yes`.
    """

    env: ClassVar[dict[str, str]] = {Factory.ORIGINATOR_ID_TYPE: "text", Factory.CREATE: "no"}

    def construct_factory(self, env: Environment) -> InfrastructureFactory[Any]:
        return Factory(env)

    def construct_mapper(self) -> Mapper[Any]:
        return LedgerMapper(super().construct_mapper())

    def construct_repository(self) -> Repository[Any]:
        usual = super().construct_repository()
        repository = LedgerRepository(
            cast("Factory", self.factory).datastore,
            usual.event_store,
            snapshot_store=usual.snapshot_store,
            fastforward=usual.fastforward,
            fastforward_skipping=usual.fastforward_skipping,
            deepcopy_from_cache=usual.deepcopy_from_cache,
        )
        repository.cache = usual.cache
        return repository

    def save(self, *objs: Any, **kwargs: Any) -> list[Recording[Any]]:
        """Save another program's aggregates or events. Raises `ProgrammingError` for anything of ours."""
        for thing in objs:
            if isinstance(thing, Event | Opaque | State):
                raise refusal(type(thing).__name__)
        return super().save(*objs, **kwargs)
