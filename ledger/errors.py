"""The one tree of errors. Each says what was wrong with which value and what to do, and keeps its cause.

LedgerError
├── InvalidMessage            the message cannot be sent as it is; nothing was recorded
│   ├── InvalidMedia          the file of an attachment cannot be taken as it is
│   └── UnknownChannel        no channel of that name and account is configured
├── UnroutableSource          a source that names no conversation
├── IdempotencyConflict       the key stands for other content
├── DeliveryFailed            a bridged payload has ended as failed; nothing more is sent
├── NotPossible               a decision that the intent's state does not allow
├── NoSuchStream              nothing with that id
│   └── NoSuchIntent          no intent with that id, or none yet at that time
├── InvalidQuery              a filter, value or position that no read can answer
├── HeldStream                (in `fold.py`) an event of the stream cannot be read; it is left alone
├── Unappendable              these events cannot be written down
│   └── StreamHeld            their stream holds an event that cannot be read
├── InvalidConfig             a configuration value or a channel's declaration is wrong
│   └── SurfaceMismatch       a channel speaks another major version of the surface
├── Conflict                  somebody else was first; decide again
│   ├── StaleHead             the stream has another head than the one that was read
│   ├── LaneBusy              an earlier message of the lane is not out of the way
│   ├── KeyTaken              the idempotency key has its intent already
│   ├── AlreadyReceived       the platform's event was received before
│   └── MediaReleased         a copy of a file was removed before its message was recorded
├── StoreUnavailable          the ledger cannot be written or read now; nothing was done
│   ├── StoreLocked           another process held the lock for too long
│   ├── StoreFull             no space left
│   ├── StoreReadOnly         file or folder may not be written
│   ├── StoreBroken           I/O error, damaged file
│   ├── StoreOverloaded       too many appends wait for the writer
│   └── StoreClosed           the ledger was closed, or the process forked after opening it
├── WriteUncertain            a commit failed in a way that may still have committed; the key resolves it
└── CannotOpen                the ledger is refused as it is
    ├── NotALedger            the file is no SQLite database, or not a ledger
    ├── NewerSchema           written by a later version
    ├── KeysMissing           `<ledger>.keys` is not there
    ├── KeysWrong             the keys belong to another ledger
    ├── NetworkFileSystem     SQLite's locks cannot be trusted there
    └── UnsafeSqlite          this SQLite can lose commits
"""

from __future__ import annotations


class LedgerError(Exception):
    """Base of all errors that msgledger raises on purpose."""


class InvalidMessage(LedgerError):
    """The message cannot be sent as it is; nothing was recorded."""


class InvalidMedia(InvalidMessage):
    """The file of an attachment cannot be taken as it is; nothing was recorded, and nothing of it is left behind."""


class UnknownChannel(InvalidMessage):
    """No channel of that name and account is configured."""


class UnroutableSource(LedgerError):
    """The source of a message names no conversation: it has no session, and strangers never share one."""


class IdempotencyConflict(LedgerError):
    """The key already stands for an intent with other content. `intent` is the id of the one that stands."""

    def __init__(self, message: str, intent: str) -> None:
        super().__init__(message)
        self.intent = intent


class DeliveryFailed(LedgerError):
    """What a bridge handed over has ended as failed, and nothing more is sent. `intent` is its id."""

    def __init__(self, message: str, intent: str) -> None:
        super().__init__(message)
        self.intent = intent


class NotPossible(LedgerError):
    """A decision that the intent's state does not allow."""


class NoSuchStream(LedgerError):
    """Nothing with that id."""


class NoSuchIntent(NoSuchStream):
    """No intent with that id, or none yet at that time."""


class InvalidQuery(LedgerError, ValueError):
    """A filter, value or position that no read can answer."""


class InvalidConfig(LedgerError):
    """A configuration value or a channel's declaration is wrong."""


class SurfaceMismatch(InvalidConfig):
    """A channel speaks another major version of the channel surface."""


class Unappendable(LedgerError):
    """This append can never go in as it is, whoever tries again; nothing of it was recorded."""


class StreamHeld(Unappendable):
    """The stream holds an event that this version cannot read: it is left alone, and everything else goes on."""


class Conflict(LedgerError):
    """Somebody else was first; read again and decide again."""


class StaleHead(Conflict):
    """The stream has another head than the one that the decision was made on."""


class LaneBusy(Conflict):
    """An earlier message of the lane holds it, or one of it is in flight."""


class KeyTaken(Conflict):
    """The key has its stream already: an idempotency key its intent, a session's or cursor's its one. `intent` is the
    stream's id."""

    def __init__(self, intent: str, kind: str = "intent") -> None:
        super().__init__(f"the key already stands for {kind} {intent}")
        self.intent = intent


class AlreadyReceived(Conflict):
    """The platform's event was received before. `inbound` is its id."""

    def __init__(self, inbound: str) -> None:
        super().__init__(f"the event was received already, as inbound {inbound}")
        self.inbound = inbound


class MediaReleased(Conflict):
    """The copy of a file was removed, as nothing needed it, before the message that it is for was recorded."""


class StoreUnavailable(LedgerError):
    """The ledger cannot be written or read now; nothing was done."""


class StoreLocked(StoreUnavailable):
    """Another process held the ledger's lock for longer than the bound."""


class StoreFull(StoreUnavailable):
    """No space is left for the ledger."""


class StoreReadOnly(StoreUnavailable):
    """The ledger or its folder may not be written."""


class StoreBroken(StoreUnavailable):
    """An I/O error, or a damaged file."""


class StoreOverloaded(StoreUnavailable):
    """Too many appends wait for the writer already."""


class StoreClosed(StoreUnavailable):
    """The ledger was closed, or the process forked after opening it."""


class WriteUncertain(LedgerError):
    """A commit failed in a way that may still have committed. Ask by the idempotency key before sending anew."""


class CannotOpen(LedgerError):
    """The ledger is refused as it is."""


class NotALedger(CannotOpen):
    """The file is no SQLite database, or a database that is not a ledger."""


class NewerSchema(CannotOpen):
    """A later version of msgledger wrote it."""


class KeysMissing(CannotOpen):
    """The ledger stands, its keys file does not."""


class KeysWrong(CannotOpen):
    """The keys file belongs to another ledger."""


class NetworkFileSystem(CannotOpen):
    """SQLite's locks cannot be trusted on a network file system."""


class UnsafeSqlite(CannotOpen):
    """This version of SQLite can lose commits when two connections write at once."""
