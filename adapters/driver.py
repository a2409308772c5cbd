"""The httpx2 driver: one request on the wire for each call, and the truth about how far it came.

It follows no redirect, retries nothing, takes no proxy or cookie from anywhere, and never logs a header. A credential
that stands in the address goes onto the wire alone: httpx2 does not know it, and what comes back is rid of it. The
phase of a failure comes from httpx2's `trace` extension: before `send_request_headers` started, nothing has left this
process.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import TYPE_CHECKING, Any, BinaryIO, Final
from urllib.parse import urlsplit

from ..ledger.errors import InvalidConfig
from ..ledger.limits import IN_FLIGHT_MAX
from ..ledger.outcome import Cause
from ..version import __version__
from .exchange import Answer, Fault, File, Request
from .secret_path import SecretPath

if TYPE_CHECKING:
    import httpx2

ANSWER_MAX_BYTES: Final = 1_048_576
"""The longest answer body that is read where nothing else is said; a longer one counts as not understood."""
PIECE_BYTES: Final = 262_144
"""How much of a file is read at a time."""
KEEPALIVE_S: Final = 5.0
"""How long an idle connection is kept for the next request."""
RESERVE_PART: Final = 0.05
RESERVE_MAX_S: Final = 0.2
"""A request ends this much before its deadline, so that its phase is told before anybody above cuts it off."""
WAITED_S: Final = 0.1
"""A request that waited longer for its connection than this looks again before its bytes leave."""
USER_AGENT: Final = f"msgledger/{__version__}"

LastLook = Callable[[], Awaitable[None]]


class _Progress:
    """How far one request has come, told by the trace."""

    __slots__ = ("connected", "dispatched", "look", "partial", "raw", "started", "status", "stopped")

    def __init__(self, look: LastLook | None, started: float, connected: bool) -> None:
        self.look = look
        self.started = started
        self.connected = connected
        self.dispatched = False
        self.partial = False
        self.status: int | None = None
        self.stopped: Exception | None = None
        self.raw: Any = None
        """A connection that nobody owns yet: its handshake is under way."""

    async def trace(self, event: str, info: Mapping[str, Any]) -> None:
        if event.endswith(".connect_tcp.complete"):
            self.connected, self.raw = True, info["return_value"]
        elif event.endswith(".send_request_headers.started"):
            waited = time.monotonic() - self.started > WAITED_S
            if self.look is not None and (self.connected or waited):
                try:
                    await self.look()
                except Exception as error:
                    self.stopped = error
                    raise
            self.dispatched, self.raw = True, None

    async def drop_raw(self) -> None:
        """httpx2 leaves a connection open whose handshake was cut off."""
        if self.raw is not None:
            with suppress(Exception):
                await self.raw.aclose()

    def fault(self, cause: Cause, detail: str) -> Fault:
        if not self.dispatched:
            return Fault("not_dispatched", detail, cause)
        return Fault("response_partial" if self.partial else "dispatched", detail, cause, self.status)


class Driver:
    """Sends requests to one base URL. Opened and closed once; the client is made by the first request otherwise.

    `secret_path` stands between base URL and path, on the wire and nowhere else.
    """

    def __init__(
        self, base_url: str, *, answer_max_bytes: int = ANSWER_MAX_BYTES, secret_path: SecretPath | None = None
    ) -> None:
        self._base_url = base_url.rstrip("/")
        self._answer_max_bytes = answer_max_bytes
        self._secret = secret_path
        self._made: httpx2.AsyncClient | None = None

    def __repr__(self) -> str:
        return f"Driver({self._base_url!r})"

    @property
    def is_open(self) -> bool:
        return self._made is not None

    async def open(self) -> None:
        self._client()

    async def close(self) -> None:
        made, self._made = self._made, None
        if made is not None:
            await made.aclose()
            if self._secret is not None:
                self._secret.watch_no_more()

    async def send(
        self,
        request: Request,
        credentials: Mapping[str, str],
        *,
        deadline_s: float,
        last_look: LastLook | None = None,
        look_always: bool = False,
    ) -> Answer | Fault:
        """Exactly one request, over within `deadline_s`. What `last_look` raises comes out unchanged, nothing sent."""
        if deadline_s <= 0:
            return Fault("not_dispatched", "no time is left before the deadline", Cause.TIMEOUT)
        deadline_s -= min(deadline_s * RESERVE_PART, RESERVE_MAX_S)
        client = self._client()
        progress = _Progress(last_look, time.monotonic(), connected=look_always)
        file = None
        try:
            async with asyncio.timeout(deadline_s):
                file = None if request.file is None else await asyncio.to_thread(_opened, request.file)
                return await self._exchange(client, request, file, credentials, deadline_s, progress)
        except Exception as error:
            if progress.stopped is not None:
                raise progress.stopped from None
            detail = _detail(error, deadline_s)
            return progress.fault(_cause(error), detail if self._secret is None else self._secret.out_of(detail))
        finally:
            if file is not None:
                file.close()
            await progress.drop_raw()

    async def _exchange(
        self,
        client: httpx2.AsyncClient,
        request: Request,
        file: BinaryIO | None,
        credentials: Mapping[str, str],
        deadline_s: float,
        progress: _Progress,
    ) -> Answer | Fault:
        headers = [*request.headers, *credentials.items()]
        content: bytes | AsyncIterator[bytes] | None = request.body or None
        if file is not None and request.file is not None:
            length = len(request.body) + request.file.length + len(request.tail)
            headers.append(("content-length", str(length)))
            content = _streamed(request.body, file, request.file.length, request.tail)
        extensions: dict[str, Any] = {"trace": progress.trace}
        if self._secret is not None:
            extensions["target"] = self._secret.before(urlsplit(self._base_url).path, request.target)
        made = client.build_request(
            request.method,
            self._base_url + request.target,
            headers=headers,
            content=content,
            timeout=deadline_s,
            extensions=extensions,
        )
        response = await client.send(made, stream=True, auth=None, follow_redirects=False)
        try:
            progress.partial, progress.status = True, response.status_code
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > self._answer_max_bytes:
                    return progress.fault(Cause.MALFORMED, f"the answer is longer than {self._answer_max_bytes} bytes")
            named = {name.lower(): value for name, value in response.headers.items()}
            answer = Answer(response.status_code, named, bytes(body), time.time())
            return answer if self._secret is None else self._secret.out_of_answer(answer)
        finally:
            await response.aclose()

    def _client(self) -> httpx2.AsyncClient:
        if self._made is None:
            try:
                import httpx2
            except ImportError as error:
                raise InvalidConfig(
                    "this channel speaks HTTP and httpx2 is missing: install msgledger[http]"
                ) from error
            if self._secret is not None:
                self._secret.watch()
            limits = httpx2.Limits(
                max_connections=IN_FLIGHT_MAX, max_keepalive_connections=IN_FLIGHT_MAX, keepalive_expiry=KEEPALIVE_S
            )
            self._made = httpx2.AsyncClient(
                transport=httpx2.AsyncHTTPTransport(verify=_tls(), trust_env=False, retries=0, limits=limits),
                headers={"user-agent": USER_AGENT, "accept-encoding": "identity"},
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
                follow_redirects=False,
                trust_env=False,
            )
        return self._made


def _opened(file: File) -> BinaryIO:
    """Raises `OSError` before anything has left."""
    if file.path is None:
        raise FileNotFoundError("the request has no file to send")
    return file.path.open("rb", buffering=0)


async def _streamed(head: bytes, file: BinaryIO, length: int, tail: bytes) -> AsyncGenerator[bytes]:
    """So many bytes of the file and no more, read off the loop; fewer fail the request, as its length was told."""
    if head:
        yield head
    left = length
    while left and (piece := await asyncio.to_thread(file.read, min(left, PIECE_BYTES))):
        left -= len(piece)
        yield piece
    if tail:
        yield tail


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    """Reading the certificates takes longer than most requests: once a process is enough."""
    import httpx2

    return httpx2.create_ssl_context(trust_env=False)


def _cause(error: Exception) -> Cause:
    import httpx2

    if isinstance(error, TimeoutError | httpx2.TimeoutException):
        return Cause.TIMEOUT
    if isinstance(error, httpx2.DecodingError):
        return Cause.MALFORMED
    return Cause.RESET


def _detail(error: Exception, deadline_s: float) -> str:
    name = type(error).__name__
    if isinstance(error, TimeoutError):
        return f"{name}: no whole answer within {deadline_s:g} s"
    return f"{name}: {error}" if str(error) else name
