"""An open ledger as the recorders of the `eventsourcing` library share it: its life, its ids, its errors.

It is closed by `close`, or once nobody holds it any more: that library's runners never close the factory of a view.
"""

from __future__ import annotations

import _thread
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Final, Literal, Protocol, TypeVar
from uuid import UUID

from eventsourcing.persistence import InfrastructureFactoryError, IntegrityError, OperationalError

from .. import codec, errors
from ..events import Event
from .batch import Batch
from .store import Store

T = TypeVar("T")
IdType = Literal["uuid", "text"]
_MODULE: Final = f"{Event.__module__}:"


class Follower(Protocol):
    def stop(self) -> None: ...


class Datastore:
    """`Datastore.open`, or around a store that somebody else has opened and closes."""

    def __init__(self, store: Store, id_type: IdType = "uuid") -> None:
        self.store = store
        self.id_type: IdType = id_type
        self.followers: weakref.WeakSet[Follower] = weakref.WeakSet()
        """Subscriptions, to be stopped before the ledger is closed."""
        self._forgotten: weakref.finalize[..., Datastore] | None = None

    @classmethod
    def open(cls, path: str, id_type: IdType, *, create: bool) -> Datastore:
        """Raises `InfrastructureFactoryError` with what the ledger's own error says."""
        try:
            store = Store.open(path, (), wall_ms=lambda: time.time_ns() // 1_000_000, create=create)
        except errors.LedgerError as error:
            raise InfrastructureFactoryError(str(error)) from error
        datastore = cls(store, id_type)
        datastore._forgotten = weakref.finalize(datastore, _close_elsewhere, store)
        datastore._forgotten.atexit = False
        return datastore

    def originator_id(self, stream: str) -> UUID | str:
        """The id of a stream as this program wants it; text stays text where it is not what a UUID is written as."""
        if self.id_type == "uuid":
            try:
                found = UUID(stream)
            except ValueError:
                return stream  # another program's
            if str(found) == stream:
                return found
        return stream

    def read(self, work: Callable[..., T], *arguments: object) -> T:
        """`work(cursor, *arguments)` over one snapshot. It cannot write."""
        try:
            return self.store.read_sync(work, *arguments)
        except errors.LedgerError as error:
            raise OperationalError(str(error)) from error

    def transact(self, work: Callable[[Batch], T]) -> T:
        """`work(batch)` in one durable transaction. Raises `IntegrityError` where a row contradicts one that stands."""
        try:
            return self.store.transact_sync(work)
        except errors.Unappendable as error:
            raise IntegrityError(str(error)) from error
        except errors.LedgerError as error:
            raise OperationalError(str(error)) from error

    def close(self) -> None:
        """End the subscriptions, then close the ledger. Returns when it is closed."""
        for follower in list(self.followers):
            follower.stop()
        if self._forgotten is not None:
            self._forgotten.detach()
        if threading.current_thread().name.startswith("msgledger "):
            _close_elsewhere(self.store)
        else:
            self.store.close()


def _close_elsewhere(store: Store) -> None:
    """Garbage is collected on any thread: on one of the store's own, which cannot wait for itself, or with a lock held
    that `threading.Thread` wants."""
    _thread.start_new_thread(store.close, ())


def topic_of(name: str) -> str:
    """A topic as the ledger knows it: that library's `get_topic` puts the module before the name of our events."""
    short = name.removeprefix(_MODULE)
    return short if short in codec.TOPICS else name


def topics_of(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(topic_of(name) for name in names)
