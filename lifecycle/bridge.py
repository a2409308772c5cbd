"""The way in for a gateway that owns its delivery: receipts first, then the record, then durability, step by step.

`bridge` wraps the gateway's callback; `record`, `attempting`, `delivered` and `failed` are for one with a `send()` of
its own. Nothing here is durable unless the caller says so, and nothing that the gateway sends by itself is sent by us.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from ..ledger.limits import ATTEMPTS_MAX
from ..ledger.message import Message
from .bridging.claims import Attempting, Claims, Named
from .bridging.payloads import Callback, Explicit, Payloads, Projection, Settings
from .bridging.turn import Bridge
from .plan import Options
from .reads import Reads
from .send import Delivery, Sender


class Bridges(Reads):
    """What a gateway offers one that delivers by itself."""

    _sender: Sender
    _claims: Claims | None = None

    def bridge(
        self,
        channel: str,
        deliver: Callback,
        *,
        durable: Explicit = None,
        project: Projection | None = None,
        account: str | None = None,
        needs: Collection[str] | Callable[[Any], Collection[str]] = (),
        hooks: tuple[str, ...] = (),
        ids: Callable[[Any], Any] | None = None,
    ) -> Bridge:
        """A bridge around `deliver(payload)`, the async function that sends on `channel` today.

        `durable`: None, False: `deliver` goes on sending, and its receipts come back. True, `required` and
        `best_effort`: the ledger sends over the configured channel, where that brings along what the payload needs;
        `project(payload)` gives the message, a list of messages that belong together, `NoSend(reason)`, or None for
        what is no message. `needs`: what only the gateway knows a payload to need, such as `silent`. `hooks`: names of
        the functions that change its messages. `ids` takes the ids from what `deliver` returns.

        Raises `InvalidConfig`.
        """
        settings = Settings(
            channel=channel, account=account, project=project, durable=durable, needs=needs, hooks=hooks, ids=ids
        )
        return Bridge(Payloads(self._sends, deliver, settings))

    async def record(
        self,
        message: Message,
        *,
        key: str | None = None,
        producer: str | None = None,
        run: str | None = None,
        ordinal: int | None = None,
        session: str | None = None,
        ordered: bool = True,
        max_attempts: int = ATTEMPTS_MAX,
        max_age_s: float | None = None,
        not_before: int | None = None,
        traceparent: str | None = None,
        hooks: tuple[str, ...] = (),
    ) -> Delivery:
        """Record what the gateway is about to send by itself, over a channel that is `External`. Durable on return.

        The options are those of `send`; an unknown outcome is always held. Raises as `send` does.
        """
        options = Options(
            key=key,
            producer=producer,
            run=run,
            ordinal=ordinal,
            session=session,
            ordered=ordered,
            max_attempts=max_attempts,
            max_age_s=max_age_s,
            not_before=not_before,
            traceparent=traceparent,
            hooks=hooks,
        )
        return await self._work().record(message, options)

    async def attempting(self, of: Named) -> Attempting:
        """Claim it for one attempt, durably, right before the gateway's own request.

        Raises `LaneBusy` while an earlier message of the conversation is not out of the way, `NotPossible` where no
        attempt may begin: one is in flight, its outcome is unknown, it has ended, or it is not due yet.
        """
        return await self._work().attempting(of)

    async def delivered(self, of: Named, receipt: object = None) -> Delivery:
        """The platform took it: its id, a list of ids, a `Receipt`, or None where the channel gives none.

        Taken at any time: after the lease it is a late fact, after another end a contradiction that is counted. Given
        an intent instead of an attempt, it is about the newest one.
        """
        return await self._words().delivered(of, receipt)

    async def failed(self, of: Named, error: BaseException | None = None) -> Delivery:
        """It did not work. `Rejected` and `NotDispatched` say that nothing was sent; anything else, that nobody knows.

        The delivery that comes back says when the next attempt is due (`due_at`), if there is to be one.
        """
        return await self._words().failed(of, error)

    def _work(self) -> Claims:
        self._opened()
        assert self._claims is not None
        return self._claims

    def _words(self) -> Claims:
        """Also while the gateway closes: it waits for what is in flight."""
        return self._work() if self._claims is None else self._claims

    def _sends(self) -> Sender:
        self._opened()
        return self._sender
