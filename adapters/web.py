"""Several webhooks as one Starlette application, with a place to ask whether it runs. Needs `msgledger[web]`.

Routing is Starlette's; what each path takes, and when it is acknowledged, is the webhook's (`webhook.py`), which any
other ASGI framework can mount by itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Final

from ..ledger.errors import InvalidConfig

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

    from .webhook import Webhook

HEALTH: Final = "/health"


def web_app(*hooks: Webhook, ready: Callable[[], bool] | None = None, health: str = HEALTH) -> Starlette:
    """The application: each webhook at its path, and `health`, which answers 200, or 503 while `ready()` is false.

    At its shutdown it lets what was answered for be recorded. Raises `InvalidConfig` where two share a path, and where
    starlette is not installed.
    """
    try:
        from starlette.applications import Starlette
        from starlette.responses import PlainTextResponse
        from starlette.routing import Route
    except ImportError as error:
        raise InvalidConfig("one application for several webhooks needs starlette: install msgledger[web]") from error

    paths = [hook.path for hook in hooks]
    twice = next((path for path in [*paths, health] if [*paths, health].count(path) > 1), None)
    if twice is not None:
        raise InvalidConfig(f"the path {twice!r} is given twice: each webhook needs one of its own")

    async def is_ready(request: Request) -> Response:
        fine = ready is None or ready()
        return PlainTextResponse("ready" if fine else "not ready", 200 if fine else 503)

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None]:
        yield
        for hook in hooks:
            await hook.close()

    routes = [Route(hook.path, hook) for hook in hooks]
    return Starlette(routes=[*routes, Route(health, is_ready)], lifespan=lifespan)
