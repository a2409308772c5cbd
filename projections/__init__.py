"""What it means now: one view a file, with its table, the rows of a state, and typed reads."""

from __future__ import annotations

from .intents import IntentsView
from .receipts import ReceiptsView
from .workers import WorkersView

VIEWS = (IntentsView(), ReceiptsView(), WorkersView())
"""The views that every ledger keeps."""
