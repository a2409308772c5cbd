"""A persistence module for the `eventsourcing` library: `PERSISTENCE_MODULE=msgledger.ledger.store.apsw`.

Recorders over the ledger's table, for reading our events with the tools of that ecosystem, and for other programs'
events beside ours. They fold nothing and touch no view, so they refuse events of ours and other events in our streams:
ours go through `Store.append`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar
from uuid import UUID

from eventsourcing.persistence import (
    AggregateRecorder,
    ApplicationRecorder,
    InfrastructureFactory,
    Mapper,
    Notification,
    ProcessRecorder,
    ProgrammingError,
    StoredEvent,
    Subscription,
    Tracking,
    TrackingRecorder,
    Transcoder,
)
from eventsourcing.utils import Environment, EnvType, resolve_topic, strtobool

from .. import codec, errors
from . import schema
from .batch import Batch, RawEvent
from .datastore import Datastore, topic_of
from .sql import Cursor
from .subscriptions import ApswSubscription, select
from .transcoding import MsgspecMapper, MsgspecTranscoder, refusal

T = TypeVar("T")
R = TypeVar("R")


class ApswAggregateRecorder(AggregateRecorder):
    """Streams of events."""

    _forwards: ClassVar = schema.STREAM_BETWEEN
    _backwards: ClassVar = schema.STREAM_BACKWARDS

    def __init__(self, datastore: Datastore) -> None:
        self.datastore = datastore

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        """Append another program's events, all or none. Raises `IntegrityError` where a version is taken."""
        self._insert(stored_events, kwargs.get("tracking"))
        return None

    def _insert(self, stored_events: Sequence[StoredEvent], tracking: Tracking | None) -> list[int]:
        rows = [_row(event) for event in stored_events]
        if not rows and tracking is None:
            return []

        def work(batch: Batch) -> list[int]:
            _keep_out_of_ours(batch.cursor, rows)
            positions = batch.insert_raw(rows)
            if tracking is not None:
                _track(batch.cursor, tracking)
            return positions

        return self.datastore.transact(work)

    def select_events(
        self,
        originator_id: UUID | str,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[StoredEvent]:
        text = self._backwards if desc else self._forwards
        after = schema.BEFORE_ALL if gt is None else gt
        until = schema.BEHIND_ALL if lte is None else lte
        most = schema.BEHIND_ALL if limit is None else limit
        rows = self.datastore.read(_all, text, (str(originator_id), after, until, most))
        return [StoredEvent(originator_id, version, topic, state) for version, topic, state in rows]


class ApswSnapshotRecorder(ApswAggregateRecorder):
    """Other programs' snapshots, in a table of their own that may be emptied at any time."""

    _forwards = schema.SNAPSHOTS_BETWEEN
    _backwards = schema.SNAPSHOTS_BACKWARDS

    def create_table(self) -> None:
        self.datastore.transact(lambda batch: batch.cursor.execute(schema.SNAPSHOTS).get)

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        rows = [_row(event) for event in stored_events]
        if rows:
            self.datastore.transact(lambda batch: batch.cursor.executemany(schema.INSERT_SNAPSHOT, rows).get)
        return None


class ApswApplicationRecorder(ApswAggregateRecorder, ApplicationRecorder):
    """Streams, and the one sequence of all events: positions rise in the order of commits, none twice."""

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        """The same; gives the positions."""
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
        if limit < 0:
            raise ProgrammingError(f"limit is {limit}; it must be 0 or more")
        after = 0 if start is None else start - inclusive_of_start
        return select(self.datastore, after, schema.BEHIND_ALL if stop is None else stop, limit, topics)

    def max_notification_id(self) -> int | None:
        return self.datastore.read(_one, schema.LAST_POSITION)

    def subscribe(self, gt: int | None = None, topics: Sequence[str] = ()) -> Subscription[ApplicationRecorder]:
        """Use it as a context manager, or call its `stop`."""
        return ApswSubscription(self, self.datastore, gt, topics)


class ApswTrackingRecorder(TrackingRecorder):
    """How far other programs have come with some application's events.

    A view that keeps its tables in the same file extends it: `tables` are the statements that make them, and `record`
    changes them together with the tracking.
    """

    tables: ClassVar[Sequence[str]] = ()

    def __init__(self, datastore: Datastore) -> None:
        self.datastore = datastore

    def create_table(self) -> None:
        if self.tables:
            self.datastore.transact(lambda batch: [batch.cursor.execute(text).get for text in self.tables])

    def insert_tracking(self, tracking: Tracking) -> None:
        """Raises `IntegrityError` where it would not come forward."""
        self.record(tracking, lambda cursor: None)

    def record(self, tracking: Tracking, work: Callable[[Cursor], T]) -> T:
        """The tracking and `work(cursor)` in one durable transaction, both or neither. Errors as `insert_tracking`."""

        def both(batch: Batch) -> T:
            _track(batch.cursor, tracking)
            return work(batch.cursor)

        return self.datastore.transact(both)

    def max_tracking_id(self, application_name: str) -> int | None:
        return self.datastore.read(_one, schema.TRACKED, (application_name,))


class ApswProcessRecorder(ApswTrackingRecorder, ApswApplicationRecorder, ProcessRecorder):
    """Events and tracking in one transaction: `insert_events(events, tracking=...)`."""


class Factory(InfrastructureFactory[ApswTrackingRecorder]):
    """What that library constructs from its environment; each key may have the application's name before it.

    `MSGLEDGER_PATH` names the file, `MSGLEDGER_CREATE` (default yes) says whether it is made where it is not there.
    `ORIGINATOR_ID_TYPE` is `uuid` (default) or `text`. `CREATE_TABLE` (default yes) is about tables for snapshots and
    views. The topics of transcoder, mapper, compressor, cipher and recorders are that library's.
    """

    PATH = "MSGLEDGER_PATH"
    CREATE = "MSGLEDGER_CREATE"
    ORIGINATOR_ID_TYPE = "ORIGINATOR_ID_TYPE"
    CREATE_TABLE = "CREATE_TABLE"

    def __init__(self, env: Environment | EnvType | None) -> None:
        super().__init__(env)
        path = self.env.get(self.PATH)
        if not path:
            raise OSError(f"no ledger is named: set {' or '.join(self.env.create_keys(self.PATH))}")
        if path == ":memory:" or path.startswith("file:"):
            raise OSError(
                f"{self.PATH} is {path!r}; a ledger is a file: give its path, in a temporary folder for tests"
            )
        id_type = self.env.get(self.ORIGINATOR_ID_TYPE, "uuid").lower()
        if id_type not in ("uuid", "text"):
            raise OSError(f"{self.ORIGINATOR_ID_TYPE} is {id_type!r}; it must be 'uuid' or 'text'")
        self.datastore = Datastore.open(path, id_type, create=self._says(self.CREATE))

    def transcoder(self) -> Transcoder:
        return super().transcoder() if self.env.get(self.TRANSCODER_TOPIC) else MsgspecTranscoder()

    def mapper(
        self, transcoder: Transcoder | None = None, mapper_class: type[Mapper[Any]] | None = None
    ) -> Mapper[Any]:
        if mapper_class is None and not self.env.get(self.MAPPER_TOPIC):
            mapper_class = MsgspecMapper
        return super().mapper(transcoder, mapper_class)

    def aggregate_recorder(self, purpose: str = "events") -> AggregateRecorder:
        if purpose == "events":
            return ApswAggregateRecorder(self.datastore)
        if purpose == "snapshots":
            return self._with_tables(ApswSnapshotRecorder(self.datastore))
        raise ProgrammingError(f"a ledger keeps 'events' and 'snapshots', no {purpose!r}")

    def application_recorder(self) -> ApplicationRecorder:
        return self._class(ApswApplicationRecorder, self.APPLICATION_RECORDER_TOPIC)(self.datastore)

    def tracking_recorder(
        self, tracking_recorder_class: type[ApswTrackingRecorder] | None = None
    ) -> ApswTrackingRecorder:
        cls = self._class(ApswTrackingRecorder, self.TRACKING_RECORDER_TOPIC, tracking_recorder_class)
        return self._with_tables(cls(self.datastore))

    def process_recorder(self) -> ProcessRecorder:
        return self._with_tables(self._class(ApswProcessRecorder, self.PROCESS_RECORDER_TOPIC)(self.datastore))

    def close(self) -> None:
        self.datastore.close()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self.close()

    def _class(self, base: type[R], key: str, given: type[R] | None = None) -> type[R]:
        topic = self.env.get(key)
        found: Any = given or (resolve_topic(topic) if topic else base)
        if not (isinstance(found, type) and issubclass(found, base)):
            raise ProgrammingError(f"{found!r} is no recorder for this persistence module: extend {base.__name__}")
        return found

    def _with_tables(self, recorder: Tabled) -> Tabled:
        if self._says(self.CREATE_TABLE):
            recorder.create_table()
        return recorder

    def _says(self, key: str) -> bool:
        value = self.env.get(key) or "yes"
        try:
            return strtobool(value)
        except ValueError as error:
            raise OSError(f"{key} is {value!r}; it must be 'yes' or 'no'") from error


Tabled = TypeVar("Tabled", ApswSnapshotRecorder, ApswTrackingRecorder, ApswProcessRecorder)


def _row(event: StoredEvent) -> RawEvent:
    topic = topic_of(event.topic)
    if topic in codec.TOPICS:
        raise refusal(topic)
    return str(event.originator_id), event.originator_version, topic, event.state


def _keep_out_of_ours(cursor: Cursor, rows: Sequence[RawEvent]) -> None:
    """One foreign event would hold a stream of ours for good."""
    for stream in {row[0] for row in rows}:
        if cursor.execute(schema.FIRST_TOPIC, (stream,)).get in codec.TOPICS:
            raise refusal(f"stream {stream}")


def _track(cursor: Cursor, tracking: Tracking) -> None:
    found = cursor.execute(schema.TRACK_OR_NOTHING, (tracking.application_name, tracking.notification_id)).get
    if found is None:
        raise errors.Unappendable(
            f"{tracking.application_name} has come to {tracking.notification_id} or further already"
        )


def _one(cursor: Cursor, text: str, values: tuple[Any, ...] = ()) -> Any:
    return cursor.execute(text, values).get


def _all(cursor: Cursor, text: str, values: tuple[Any, ...]) -> list[Any]:
    return cursor.execute(text, values).fetchall()
