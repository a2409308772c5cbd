"""Fixtures for tests against counterparts. A test module takes them with

    pytest_plugins = ("tests.counterparts.fixtures",)

and marks what needs a server, `@pytest.mark.synapse`. A test that takes `any_room` runs on both Matrix servers, each
marked by itself, and `@pytest.mark.needs("edit")` names what only one of them can do (`differences.py`). Where a
counterpart is not installed such a test is skipped and says how to install it; where `MSGLEDGER_REQUIRE` (a
comma-separated list) names the counterpart, it fails instead.
Import nothing from here: as a plugin, pytest must be the first to load it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from . import crabline as second
from . import synapse as harness
from .crabline import Crabline
from .crabline_telegram import CrablineTelegram
from .differences import CANNOT
from .proxy import Proxy
from .synapse import Login, Room, Synapse

SERVERS = [pytest.param(name, marks=getattr(pytest.mark, name)) for name in CANNOT]


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


@pytest.fixture(scope="session")
def crabline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crabline]:
    """The one Crabline server of the session."""
    require("crabline", second.installed(), second.INSTALL_COMMAND)
    with Crabline(tmp_path_factory.mktemp("crabline")) as server:
        yield server


@pytest.fixture
def crabline_room(crabline: Crabline) -> Room:
    """A new room of its one bot."""
    return Room(crabline, Login(crabline.user_id, crabline.device_id, crabline.token), crabline.create_room())


@pytest.fixture(params=SERVERS)
def any_room(request: pytest.FixtureRequest) -> Room:
    """A new room on each server in turn, where it can do what the test needs."""
    for mark in request.node.iter_markers("needs"):
        for ability in mark.args:
            if reason := CANNOT[request.param].get(ability):
                pytest.skip(f"{request.param}: {reason}")
    return request.getfixturevalue("room" if request.param == "synapse" else "crabline_room")


@pytest.fixture
def any_proxy(any_room: Room) -> Iterator[Proxy]:
    """In front of the server of `any_room`."""
    with Proxy(any_room.server.port) as made:
        yield made


@pytest.fixture(scope="session")
def bot_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CrablineTelegram]:
    """The one Bot API server of the session."""
    require("crabline", second.installed(), second.INSTALL_COMMAND)
    with CrablineTelegram(tmp_path_factory.mktemp("crabline-telegram")) as server:
        yield server


@pytest.fixture
def bot_api(bot_server: CrablineTelegram) -> Iterator[CrablineTelegram]:
    """The same with nothing waiting, and no webhook."""
    bot_server.api("deleteWebhook", drop_pending_updates=True)
    yield bot_server
    bot_server.api("deleteWebhook", drop_pending_updates=True)


@pytest.fixture
def bot_proxy(bot_api: CrablineTelegram) -> Iterator[Proxy]:
    """In front of it."""
    with Proxy(bot_api.port) as made:
        yield made
