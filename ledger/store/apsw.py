"""A persistence module for the `eventsourcing` library: `PERSISTENCE_MODULE=msgledger.ledger.store.apsw`.

Over the same table, for reading with the tools of that ecosystem, and for other programs' events beside ours. It folds
nothing and touches no view, so it refuses events of ours: those go through `Store.append`. Nothing else imports that
library.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Literal
from uuid import UUID

from eventsourcing.persistence import (
    AggregateRecorder,
    ApplicationRecorder,
    InfrastructureFactory,
    IntegrityError,
    Notification,
    OperationalError,
    ProcessRecorder,
    ProgrammingError,
    StoredEvent,
    Subscription,
    Tracking,
    TrackingRecorder,
)
from eventsourcing.utils import Environment, EnvType

from .. import codec, errors, limits
from . import schema
from .batch import Batch, RawEvent
from .sql import Cursor
from .store import Store

IdType = Literal["uuid", "text"]


class _OnStore:
    """What all recorders share: the store, and how the ids of streams are given back."""

    def __init__(self, store: Store, id_type: IdType = "uuid") -> None:
        self.store = store
        self.id_type: IdType = id_type

    def _id(self, stream: str) -> UUID | str:
        return UUID(stream) if self.id_type == "uuid" else stream

    def _transact(self, events: Sequence[RawEvent], tracking: Tracking | None) -> list[int]:
        def work(batch: Batch) -> list[int]:
            positions = batch.insert_raw(events)
            if tracking is not None:
                _track(batch.cursor, tracking)
            return positions

        try:
            return self.store.transact_sync(work)
        except errors.Unappendable as error:
            raise IntegrityError(str(error)) from error
        except errors.LedgerError as error:
            raise OperationalError(str(error)) from error


class ApswAggregateRecorder(_OnStore, AggregateRecorder):
    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        """Append another program's events, all or none."""
        self._insert(stored_events, kwargs.get("tracking"))
        return None

    def _insert(self, stored_events: Sequence[StoredEvent], tracking: Tracking | None) -> list[int]:
        rows: list[RawEvent] = []
        for event in stored_events:
            if event.topic in codec.TOPICS:
                raise ProgrammingError(
                    f"{event.topic} is an event of msgledger: append it with Store.append, which checks and folds it"
                )
            rows.append((str(event.originator_id), event.originator_version, event.topic, event.state))
        return self._transact(rows, tracking)

    def select_events(
        self,
        originator_id: UUID | str,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[StoredEvent]:
        stream = str(originator_id)
        after = schema.BEFORE_ALL if gt is None else gt
        until = schema.BEHIND_ALL if lte is None else lte
        most = limits.EVENTS_PER_STREAM_MAX if limit is None else limit
        text = schema.STREAM_BACKWARDS if desc else schema.STREAM_BETWEEN

        def work(cursor: Cursor) -> list[StoredEvent]:
            found = cursor.execute(text, (stream, after, until, most))
            return [StoredEvent(originator_id, version, topic, state) for version, topic, state in found]

        return self.store.read_sync(work)


class ApswApplicationRecorder(ApswAggregateRecorder, ApplicationRecorder):
    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        """Append another program's events, all or none; their positions."""
        return self._insert(stored_events, kwargs.get("tracking"))

    def select_notifications(
        self,
        start: int | None,
        limit: int,
        stop: int | None = None,
        topics: Sequence[str] = (),
        *,
        inclusive_of_start: bool = True,
    ) -> Sequence[Notification]:
        after = 0 if start is None else start - inclusive_of_start
        until = schema.BEHIND_ALL if stop is None else stop

        def work(cursor: Cursor) -> list[Notification]:
            found = cursor.execute(schema.page(topics or None), (after, *topics, limit))
            return [
                Notification(self._id(stream), version, topic, state, id=position)
                for stream, version, topic, state, position, _ in found
                if position <= until
            ]

        return self.store.read_sync(work)

    def max_notification_id(self) -> int | None:
        return self.store.head_position() or None

    def subscribe(self, gt: int | None = None, topics: Sequence[str] = ()) -> Subscription[ApplicationRecorder]:
        raise ProgrammingError("subscriptions are not there yet: follow with Store.on_commit and Store.page")


class ApswTrackingRecorder(_OnStore, TrackingRecorder):
    def insert_tracking(self, tracking: Tracking) -> None:
        """Record how far an application has come. Raises `IntegrityError` where it would not come forward."""
        self._transact((), tracking)

    def max_tracking_id(self, application_name: str) -> int | None:
        return self.store.tracked(application_name)


class ApswProcessRecorder(ApswTrackingRecorder, ApswApplicationRecorder, ProcessRecorder):
    """Events and tracking in one transaction: `insert_events(events, tracking=...)`."""


class Factory(InfrastructureFactory[ApswTrackingRecorder]):
    """`MSGLEDGER_PATH` names the ledger; `ORIGINATOR_ID_TYPE` is `uuid` (default) or `text`."""

    PATH = "MSGLEDGER_PATH"
    ORIGINATOR_ID_TYPE = "ORIGINATOR_ID_TYPE"

    def __init__(self, env: Environment | EnvType | None) -> None:
        super().__init__(env)
        path = self.env.get(self.PATH)
        if not path:
            raise OSError(f"no ledger is named: set {' or '.join(self.env.create_keys(self.PATH))}")
        id_type = (self.env.get(self.ORIGINATOR_ID_TYPE) or "uuid").lower()
        if id_type not in ("uuid", "text"):
            raise OSError(f"{self.ORIGINATOR_ID_TYPE} is {id_type!r}; it must be 'uuid' or 'text'")
        self.id_type: IdType = "uuid" if id_type == "uuid" else "text"
        self.store = Store.open(path, (), wall_ms=lambda: time.time_ns() // 1_000_000)

    def aggregate_recorder(self, purpose: str = "events") -> AggregateRecorder:
        if purpose != "events":
            raise ProgrammingError(f"a ledger keeps events only, no {purpose}")
        return ApswAggregateRecorder(self.store, self.id_type)

    def application_recorder(self) -> ApplicationRecorder:
        return ApswApplicationRecorder(self.store, self.id_type)

    def tracking_recorder(
        self, tracking_recorder_class: type[ApswTrackingRecorder] | None = None
    ) -> ApswTrackingRecorder:
        return (tracking_recorder_class or ApswTrackingRecorder)(self.store, self.id_type)

    def process_recorder(self) -> ProcessRecorder:
        return ApswProcessRecorder(self.store, self.id_type)

    def close(self) -> None:
        self.store.close()


def _track(cursor: Cursor, tracking: Tracking) -> None:
    found = cursor.execute(schema.TRACK_OR_NOTHING, (tracking.application_name, tracking.notification_id)).get
    if found is None:
        raise errors.Unappendable(
            f"{tracking.application_name} has come to {tracking.notification_id} or further already"
        )
