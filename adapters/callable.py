"""A channel made of an async function that a gateway already has, an SDK included.

What the function says counts, what it raises is unknown: it is never taken for a failure that sent nothing, and no
capability that its author declares counts as proved.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal

from ..ledger.errors import InvalidConfig
from ..ledger.inbound_events import AckPolicy
from ..ledger.limits import ERROR_TEXT_MAX_CHARS
from ..ledger.message import Message, RenderedBatch, RenderedUnit
from ..ledger.origin import Origin
from ..ledger.outcome import Accepted, Cause, NotDispatched, Outcome, Proof, Rejected, Unknown, Unresolved, Verdict
from .checks import check_declared
from .receiving import Event, Ignored, Incoming
from .surface import SURFACE, Capabilities, Lookup, RenderContext, SendContext, TextLimit
from .text import render_text

Deliver = Callable[[RenderedUnit, SendContext], Awaitable[Outcome | str | int | None]]
Reconcile = Callable[[RenderedUnit, SendContext], Awaitable[Verdict]]
Render = Callable[[Message, RenderContext], RenderedBatch]
Normalize = Callable[[Event], Incoming | Ignored]
EncodeOrigin = Callable[[Origin], object]
DecodeOrigin = Callable[[Event], Origin | None]


class CallableChannel:
    """`deliver(unit, context)` sends one unit and returns its id, `Accepted`, `Rejected`, `Unknown`, or None for no id.

    `Rejected` and `NotDispatched` may be raised too; anything else that is raised is `Unknown(raised)`. The function
    has `context.deadline_s` seconds and is cancelled then. `credential` and `config` are kept as keyed digests only:
    another credential closes the deduplication window, another config wakes what auth or permission held. A channel
    with `attachments="upload"` finds the file of a unit at `context.media`, and only reads it.
    Raises `InvalidConfig` where the declaration is wrong.
    """

    reconcile: Reconcile
    """There only where a function was given."""
    normalize: Normalize
    """There only where a function was given: then the channel receives too."""
    dedupe_key: Callable[[Event], str]
    encode_origin: EncodeOrigin
    decode_origin: DecodeOrigin
    """There only where both functions were given: then its origin is `native`."""
    surface: int = SURFACE

    def __init__(
        self,
        name: str,
        deliver: Deliver,
        *,
        account: str = "default",
        text_max: int = 4096,
        text_unit: Literal["utf16", "codepoints", "bytes"] = "codepoints",
        chunking: bool = False,
        capabilities: Capabilities | None = None,
        reconcile: Reconcile | None = None,
        render: Render | None = None,
        normalize: Normalize | None = None,
        dedupe_key: Callable[[Event], str] | None = None,
        encode_origin: EncodeOrigin | None = None,
        decode_origin: DecodeOrigin | None = None,
        ack_policy: AckPolicy = "after_record",
        ready: bool | Callable[[], bool] = True,
        credential: str = "",
        config: str = "",
        version: str = "",
    ) -> None:
        """`capabilities` replaces the text arguments. `reconcile` without it declares a look-up without evidence.

        `normalize` and `dedupe_key` read the events that the gateway gets from the platform: what one says, and what
        the platform repeats when it delivers it again. They go together.

        `encode_origin` and `decode_origin` are of a platform whose messages can carry metadata: `deliver` writes
        `encode_origin(context.origin)` into the message, `decode_origin(event)` reads it back. They go together too.
        """
        if not callable(deliver):
            raise InvalidConfig(f"channel {name!r} needs an async function as deliver, not {type(deliver).__name__}")
        if capabilities is None:
            look = Lookup("history_match") if reconcile is not None else None
            tags = "native" if encode_origin is not None else "registry"
            capabilities = Capabilities(text=TextLimit(text_max, text_unit, chunking), reconcile=look, origin=tags)
        for claim in (capabilities.idempotency, capabilities.reconcile):
            if claim is not None and claim.evidence == "proved":
                raise InvalidConfig(
                    f"channel {name!r} declares {type(claim).__name__.lower()} as proved: "
                    "the claim of a function is at most `documented`"
                )
        tagging = encode_origin is not None and decode_origin is not None
        check_declared(name, capabilities, reconciles=reconcile is not None, tags=tagging)
        if encode_origin is not None and decode_origin is not None:
            self.encode_origin, self.decode_origin = encode_origin, decode_origin
        elif encode_origin is not None or decode_origin is not None:
            raise InvalidConfig(f"channel {name!r} needs encode_origin and decode_origin together: it has one of them")
        self.name, self.account, self.version = name, account, version
        self.capabilities = capabilities
        self.credential, self.config = credential, config
        self._deliver, self._render, self._ready, self._look = deliver, render, ready, reconcile
        if reconcile is not None:
            self.reconcile = self._reconcile
        self.ack_policy: AckPolicy = ack_policy
        if (normalize is None) != (dedupe_key is None):
            raise InvalidConfig(f"channel {name!r} needs normalize and dedupe_key together: it has one of them")
        if normalize is not None and dedupe_key is not None:
            self.normalize, self.dedupe_key = normalize, dedupe_key

    def __repr__(self) -> str:
        return f"CallableChannel({self.name!r}, account={self.account!r})"

    @property
    def ready(self) -> bool:
        return self._ready if isinstance(self._ready, bool) else bool(self._ready())

    def render(self, message: Message, context: RenderContext) -> RenderedBatch:
        if self._render is not None:
            return self._render(message, context)
        return render_text(message, self.capabilities, channel=self.name)

    async def deliver(self, unit: RenderedUnit, context: SendContext) -> Outcome:
        """The function's word as an outcome. Only a cancellation comes out: the deadline is kept by the core."""
        try:
            said = await self._deliver(unit, context)
        except Rejected as error:
            if isinstance(error, NotDispatched) or error.proof is Proof.REJECTED:
                error.proof = Proof.DECLARED
            return error
        except Unknown as error:
            return error
        except Exception as error:
            return Unknown(Cause.RAISED, f"{type(error).__name__}: {error}"[:ERROR_TEXT_MAX_CHARS])
        return _outcome(said)

    async def _reconcile(self, unit: RenderedUnit, context: SendContext) -> Verdict:
        assert self._look is not None
        try:
            async with asyncio.timeout(max(context.deadline_s, 0)):
                return await self._look(unit, context)
        except Exception as error:
            return Unresolved(f"{type(error).__name__}: {error}"[:ERROR_TEXT_MAX_CHARS])


def _outcome(said: object) -> Outcome:
    if isinstance(said, Accepted | Unknown):
        return said
    if isinstance(said, Rejected):
        if isinstance(said, NotDispatched) or said.proof is Proof.REJECTED:
            said.proof = Proof.DECLARED
        return said
    if said is None or said == "":
        return Accepted(None)
    if isinstance(said, str):
        return Accepted(said)
    if isinstance(said, int) and not isinstance(said, bool):
        return Accepted(str(said))
    return Unknown(
        Cause.RAISED, f"deliver returned {type(said).__name__}; return an id, Accepted, Rejected, Unknown or None"
    )
