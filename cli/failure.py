"""What each error of the ledger means for the exit code. Nothing else is decided about errors here."""

from __future__ import annotations

from ..ledger import errors
from ..ledger.fold import HeldStream
from .base import PROBLEMS, UNREADABLE, USAGE

_CODES: tuple[tuple[type[Exception], int], ...] = (
    (errors.CannotOpen, UNREADABLE),
    (errors.StoreUnavailable, UNREADABLE),
    (errors.WriteUncertain, UNREADABLE),
    (errors.InvalidMessage, USAGE),
    (errors.InvalidConfig, USAGE),
    (errors.IdempotencyConflict, USAGE),
    (errors.NoSuchIntent, USAGE),
    (errors.InvalidQuery, USAGE),
    (errors.LedgerError, PROBLEMS),
    (HeldStream, PROBLEMS),
)


def code_of(error: Exception) -> int | None:
    """The exit code; None for an error that is no error of the ledger, which is a bug and shows its traceback."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), None)
