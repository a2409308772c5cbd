"""Opening the ledger that the options name, for reading or for writing, and saying who writes."""

from __future__ import annotations

import contextlib
import getpass
import os
import time
from collections.abc import Generator
from pathlib import Path

from ..ledger.errors import InvalidConfig
from ..ledger.store.clock import host_name
from ..ledger.store.store import Store
from ..projections import VIEWS, open_to_read
from .base import setup
from .config import LEDGER_VARIABLE, Config, find


def now_ms() -> int:
    """UTC milliseconds."""
    return time.time_ns() // 1_000_000


def config() -> Config:
    """The configuration of this run."""
    return find(setup().config)


def ledger_path(config: Config) -> Path:
    """An explicit argument beats the environment, which beats the file."""
    named = setup().ledger or os.environ.get(LEDGER_VARIABLE)
    if named:
        return Path(named)
    if config.ledger is not None:
        return config.ledger
    raise InvalidConfig(
        f"no ledger is named: give --ledger PATH, set {LEDGER_VARIABLE}, or put `ledger` into the configuration"
    )


@contextlib.contextmanager
def reading(config: Config) -> Generator[Store]:
    """The ledger, opened so that nothing can be written. It is never made."""
    with open_to_read(ledger_path(config), now_ms) as store:
        yield store


@contextlib.contextmanager
def writing(config: Config) -> Generator[Store]:
    """The ledger for a person's decision. It is never made here."""
    with Store.open(ledger_path(config), VIEWS, wall_ms=now_ms, create=False) as store:
        yield store


def actor() -> str:
    """`operator:<name>@<host>`."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = f"uid{os.getuid()}"
    return f"operator:{name}@{host_name()}"
