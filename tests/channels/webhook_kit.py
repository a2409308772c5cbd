"""What the tests of the webhook share: signed bodies, a raw ASGI caller, a real server in a thread of its own."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec
import uvicorn
from msgledger.adapters.http import HttpChannel
from msgledger.adapters.qa import QaAdapter
from msgledger.adapters.qa_signature import SIGNATURE, TIMESTAMP, signature
from msgledger.adapters.webhook import Webhook, webhook

from .driver_kit import EagerClock

SECRET = "qa-secret"
PATH = "/qa"


class Answered(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


def channel(**more: Any) -> HttpChannel:
    return HttpChannel(QaAdapter("http://127.0.0.1:1", secret=SECRET, polling=False, **more))


def hook(core: Any, clock: EagerClock | None = None, **more: Any) -> Webhook:
    return webhook(channel(), core, path=PATH, clock=clock or EagerClock(), **more)


def events(*numbers: int) -> bytes:
    return msgspec.json.encode({"events": [{"n": number, "id": f"e{number}"} for number in numbers]})


def signed(body: bytes, at: int = 1_800_000_000_000, secret: str = SECRET) -> dict[str, str]:
    stamp = str(at)
    return {"content-type": "application/json", TIMESTAMP: stamp, SIGNATURE: signature(secret, stamp, body)}


async def call(
    app: Any,
    body: bytes = b"",
    headers: dict[str, str] | list[tuple[bytes, bytes]] | None = None,
    *,
    method: str = "POST",
    path: str = PATH,
    pieces: int = 1,
    gone_after: int | None = None,
    root_path: str = "",
) -> Answered | None:
    """One request as a server hands it over; None where no answer was sent."""
    size = max(1, -(-len(body) // pieces))
    parts = [body[at : at + size] for at in range(0, len(body), size)] or [b""]
    sent: list[Any] = []
    read = 0

    async def receive() -> dict[str, Any]:
        nonlocal read
        await asyncio.sleep(0)
        if gone_after is not None and read >= gone_after:
            return {"type": "http.disconnect"}
        read += 1
        if read > len(parts):
            await asyncio.Event().wait()
        return {"type": "http.request", "body": parts[read - 1], "more_body": read < len(parts)}

    async def send(message: Any) -> None:
        sent.append(message)

    raw = headers if isinstance(headers, list) else [(k.encode(), v.encode()) for k, v in (headers or {}).items()]
    scope = {"type": "http", "method": method, "path": path, "root_path": root_path, "headers": raw}
    await app(scope, receive, send)
    if not sent:
        return None
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    told = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    assert told["content-length"] == str(len(sent[1]["body"]))
    return Answered(sent[0]["status"], told, sent[1]["body"])


@asynccontextmanager
async def served(app: Any) -> AsyncIterator[str]:
    """A real server for it, on a free port of the loopback address, in this loop."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="on", timeout_graceful_shutdown=2))
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined,method-assign]
    server.capture_signals = _no_signals  # type: ignore[method-assign]
    task = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        async with asyncio.timeout(20):
            while not server.started:
                await asyncio.sleep(0.005)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        await asyncio.wait_for(task, 20)
        listening.close()


def _no_signals() -> Any:
    import contextlib

    return contextlib.nullcontext()


async def raw(url: str, *pieces: bytes, half_closed: bool = False) -> bytes:
    """Bytes to a real server, one piece after the other; everything that it answers until it closes."""
    port = int(url.rsplit(":", 1)[1])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        if half_closed:
            writer.write_eof()
        async with asyncio.timeout(20):
            return await reader.read()
    finally:
        writer.close()


def head(body_length: int | str, headers: dict[str, str]) -> bytes:
    lines = [f"POST {PATH} HTTP/1.1", "host: h", "connection: close", f"content-length: {body_length}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"
