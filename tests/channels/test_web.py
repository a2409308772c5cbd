"""Several webhooks as one application, on a real server."""

from __future__ import annotations

import asyncio
import builtins
from typing import Any

import httpx2
import pytest
from msgledger.adapters.receiving import Event, Refused, Taken
from msgledger.adapters.web import web_app
from msgledger.adapters.webhook import webhook
from msgledger.ledger.errors import InvalidConfig

from .webhook_kit import served


class Channel:
    """Verifies by one header."""

    account = "bot"

    def __init__(self, name: str) -> None:
        from msgledger.adapters.surface import Capabilities

        self.name, self.capabilities = name, Capabilities()

    def verify(self, headers: Any, body: bytes, at: int) -> None:
        if headers.get("x-secret") != self.name:
            raise Refused(403, "another secret")

    def unpack(self, headers: Any, body: bytes) -> list[Event]:
        return [{"body": body.decode()}]


class Intake:
    policy = "after_record"

    def __init__(self) -> None:
        self.taken: list[Event] = []

    async def take(self, event: Event) -> Taken:
        self.taken.append(event)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return Taken(inbound="1", reached=True, done=done)


def test_each_webhook_has_its_path_and_health_its_own() -> None:
    """RCV-5, SC-58: what goes to one is not the other's; a secret of one opens nothing of the other."""
    intakes = {name: Intake() for name in ("one", "two")}
    ready = [False]

    async def main() -> list[int]:
        hooks = [webhook(Channel(name), intakes[name], path=f"/{name}") for name in intakes]  # type: ignore[arg-type]
        app = web_app(*hooks, ready=lambda: ready[0])
        async with served(app) as url, httpx2.AsyncClient() as client:

            async def post(path: str, secret: str) -> int:
                headers = {"x-secret": secret, "content-type": "application/json"}
                return (await client.post(url + path, headers=headers, content=b"{}")).status_code

            found = [await post("/one", "one"), await post("/two", "one"), await post("/two", "two")]
            found += [await post("/three", "one"), (await client.get(url + "/one")).status_code]
            found.append((await client.get(url + "/health")).status_code)
            ready[0] = True
            found.append((await client.get(url + "/health")).status_code)
            return found

    assert asyncio.run(main()) == [200, 403, 200, 404, 405, 503, 200]
    assert [len(intake.taken) for intake in intakes.values()] == [1, 1]


def test_a_path_is_given_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """ADP-3: a mistake in the set-up is said when it is made; so is what is not installed."""
    hooks = [webhook(Channel("one"), Intake(), path=path) for path in ("/a", "/a", "/health")]  # type: ignore[arg-type]
    for wrong in (hooks[:2], hooks[1:]):
        with pytest.raises(InvalidConfig, match="is given twice"):
            web_app(*wrong)
    real = builtins.__import__

    def without(name: str, *more: Any, **also: Any) -> Any:
        if name.startswith("starlette"):
            raise ImportError(name)
        return real(name, *more, **also)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InvalidConfig, match=r"install msgledger\[web\]"):
        web_app(hooks[0])
