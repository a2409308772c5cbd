"""Fixtures for tests against counterparts. A test module takes them with

    pytest_plugins = ("tests.counterparts.fixtures",)

and marks what needs a server, `@pytest.mark.synapse`. Where a counterpart is not installed such a test is skipped and
says how to install it; where `MSGLEDGER_REQUIRE` (a comma-separated list) names the counterpart, it fails instead.
Import nothing from here: as a plugin, pytest must be the first to load it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from . import synapse as harness
from .proxy import Proxy
from .synapse import Room, Synapse


def require(counterpart: str, installed: bool, how: str) -> None:
    """Skips where the counterpart is missing, or fails where it is said to be required."""
    if installed:
        return
    reason = f"{counterpart} is not installed; install it with: {how}"
    if counterpart in os.environ.get("MSGLEDGER_REQUIRE", "").replace(" ", "").split(","):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def synapse_installed() -> None:
    """For tests that start a homeserver of their own, with `Synapse(tmp_path, ...)`."""
    require("synapse", harness.installed(), harness.INSTALL_COMMAND)


@pytest.fixture(scope="session")
def _homeserver(synapse_installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Synapse]:
    with Synapse(tmp_path_factory.mktemp("synapse")) as server:
        yield server


@pytest.fixture
def synapse(_homeserver: Synapse) -> Synapse:
    """The one homeserver of the session, running, whatever the test before did to it."""
    _homeserver.start()
    return _homeserver


@pytest.fixture
def room(synapse: Synapse) -> Room:
    """A new room of a new bot, on its device `BOT`."""
    return synapse.room()


@pytest.fixture
def proxy(synapse: Synapse) -> Iterator[Proxy]:
    """In front of the homeserver; forwards everything until it is told otherwise."""
    with Proxy(synapse.port) as made:
        yield made
