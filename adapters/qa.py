"""Our own platform's adapter: every hook of the surface, against a server that can be told how to misbehave.

Sans-I/O. It maps each failure class of the platform and takes nothing for a rejection that is not well-formed. Every
capability can be overridden, so that a weaker platform is played by the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import msgspec

from ..ledger.errors import InvalidMessage
from ..ledger.limits import ERROR_TEXT_MAX_CHARS
from ..ledger.message import Message, ReceiptPart, RenderedBatch, RenderedUnit
from ..ledger.origin import Origin, decode
from ..ledger.outcome import (
    Accepted,
    Cause,
    FailureClass,
    NotSent,
    Outcome,
    Rejected,
    Scope,
    Sent,
    Unknown,
    Unresolved,
    Verdict,
)
from ..version import __version__
from .exchange import Answer, File, Request, retry_after_s, without_class
from .http import HttpChannel
from .qa_inbound import QaInbound
from .receiving import Event
from .surface import Ack, Capabilities, Change, Idempotency, Lookup, RenderContext, SendContext, TextLimit
from .text import marked, note, render_text, split, with_text

QA: Final = Capabilities(
    text=TextLimit(2000, "codepoints", chunking=True),
    idempotency=Idempotency("client_key", "key", 86_400.0, on_duplicate="returns_receipt", evidence="proved"),
    reconcile=Lookup("by_key", can_prove_absence=True, evidence="proved"),
    edit=Change(),
    delete=Change(),
    threads=True,
    carries=("reply_to", "hooks"),
    attachments="upload",
    media_max_bytes=64 * 1_048_576,
    origin="native",
    ack=Ack("cursor, push or socket", deadline_s=5.0),
    settle_s=0.0,
)
"""What the platform can do as it comes; `settle_s` is 0 because it runs on the same host."""
DUPLICATE: Final = "duplicate_key"
MEDIA_REFUSED: Final = ("media_unsupported", "media_too_large")
"""Codes with which the platform refuses a file; a plan without files is another way."""
_BARE_STATUS: Final = {401: FailureClass.AUTH, 429: FailureClass.RATE_LIMIT}
"""Statuses that say enough without a body."""


class QaAdapter(QaInbound):
    """`QaAdapter(url, token=..., window_s=60, idempotency=None, ...)`: keywords of `Capabilities` override `QA`.

    Threads: where `threads` is overridden to False, a thread is left out of the request and a reply is kept (CAP-3).
    """

    look_up: Callable[[RenderedUnit, SendContext], Request]
    """There only where `reconcile` is declared."""
    parse_look_up: Callable[[RenderedUnit, SendContext, Sequence[Answer]], Verdict]
    encode_origin: Callable[[Origin], dict[str, Any] | None]
    """There only where `origin` is `native`: then a message carries its tag as `origin`."""
    decode_origin: Callable[[Event], Origin | None]

    def __init__(
        self,
        base_url: str,
        *,
        token: str = "",
        name: str = "qa",
        account: str = "default",
        window_s: float | None = None,
        secret: str = "",
        user: str = "bot",
        acknowledges: bool = True,
        polling: bool = True,
        socket: bool = False,
        capabilities: Capabilities = QA,
        **overrides: Any,
    ) -> None:
        """`secret` signs what is pushed; `user` is our name on the platform; `polling=False`: nothing is fetched;
        `socket=True`: over a socket instead."""
        capabilities = msgspec.structs.replace(capabilities, **overrides)
        if window_s is not None and capabilities.idempotency is not None:
            key = msgspec.structs.replace(capabilities.idempotency, window_s=window_s)
            capabilities = msgspec.structs.replace(capabilities, idempotency=key)
        self.base_url = base_url
        self.name, self.account, self.version = name, account, __version__
        self.capabilities = capabilities
        self.polling, self.socket = polling and not socket, socket
        self._token, self._secret, self._user, self._acknowledges = token, secret, user, acknowledges
        if capabilities.reconcile is not None:
            self.look_up, self.parse_look_up = self._look_up, self._parse_look_up
        if capabilities.origin == "native":
            self.encode_origin, self.decode_origin = Origin.tag, _said_origin

    def __repr__(self) -> str:
        return f"QaAdapter({self.base_url!r}, name={self.name!r}, account={self.account!r})"

    @property
    def credential(self) -> str:
        return self._token

    @property
    def config(self) -> str:
        return f"{self.base_url} {self._token}"

    def authorize(self, request: Request) -> Mapping[str, str]:
        return {"authorization": f"Bearer {self._token}"} if self._token else {}

    def render(self, message: Message, context: RenderContext) -> RenderedBatch:
        return render_text(message, self.capabilities, channel=self.name)

    def build(self, unit: RenderedUnit, context: SendContext) -> Request:
        """The key goes out as `key` where the platform deduplicates by it, else as `label`, which only names it."""
        label = "label" if self.capabilities.idempotency is None else "key"
        path = f"/v1/messages/{quote(context.of_platform_id or '', safe='')}"
        if context.action == "delete":
            return Request("DELETE", path, ((label, context.provider_key),))
        body: dict[str, Any] = {label: context.provider_key, "text": unit.text or "", "format": unit.format}
        if self.capabilities.origin == "native" and (tag := context.origin.tag()) is not None:
            body["origin"] = tag
        if context.action == "edit":
            if unit.index > 0:
                raise InvalidMessage(f"an edit is one unit, this one has index {unit.index}: shorten the new text")
            return Request.of_json("PATCH", path, body)
        payload = unit.payload or {}
        body |= {"place": context.target.id, "kind": unit.kind}
        if self.capabilities.threads and context.target.thread is not None:
            body["thread"] = context.target.thread
        if context.reply_to is not None and unit.index == 0 and not payload.get("no_reply"):
            body["reply_to"] = context.reply_to
        if unit.media is not None:
            body["media"] = {"name": unit.media.name, "url": unit.media.url, "kind": unit.media.kind}
            if unit.media.is_file:
                body["media"]["upload"] = payload.get("upload", f"digest:{unit.media.digest}")
        return Request.of_json("POST", "/v1/messages", body)

    def prepare(self, unit: RenderedUnit, context: SendContext) -> Request | None:
        """The upload of a file. Each time the platform gives it another id."""
        media = unit.media
        if media is None or not media.is_file or context.action != "send":
            return None
        headers = (("content-type", media.media_type or "application/octet-stream"),)
        file = File(media.digest or "", media.size or 0, context.media)
        return Request("POST", "/v1/media", (("name", media.name),), headers, file=file)

    def prepared(self, unit: RenderedUnit, context: SendContext, answer: Answer) -> RenderedUnit | Rejected | Unknown:
        body = answer.json() or {}
        upload = body.get("upload")
        if answer.status == 200 and isinstance(upload, str):
            return msgspec.structs.replace(unit, payload={**(unit.payload or {}), "upload": upload})
        error = body.get("error")
        if not isinstance(error, dict):
            return without_class(answer)
        outcome = self._refused(unit, context, msgspec.convert(error, dict[str, Any]), answer, None)
        return outcome if isinstance(outcome, Rejected | Unknown) else without_class(answer)

    def parse(self, unit: RenderedUnit, context: SendContext, request: Request, answer: Answer) -> Outcome:
        request_id = answer.headers.get("x-request-id")
        body = answer.json()
        if 200 <= answer.status < 300:
            if body is None:
                return Unknown(Cause.MALFORMED, answer.excerpt(), status=answer.status, request_id=request_id)
            return self._accepted(unit, body, answer, request_id, duplicate=body.get("duplicate") is True)
        error = (body or {}).get("error")
        if not isinstance(error, dict):
            failure = _BARE_STATUS.get(answer.status)
            return self._rejected(failure, {}, answer, request_id) if failure else without_class(answer)
        return self._refused(unit, context, msgspec.convert(error, dict[str, Any]), answer, request_id)

    def fallback(
        self,
        message: Message,
        refused: RenderedBatch,
        failure: FailureClass,
        context: RenderContext,
        code: str | None = None,
    ) -> RenderedBatch | None:
        """Plain for a refused format, smaller pieces for a text that was too long, no reply for a gone target, the
        names of files that the platform does not take.

        Without a code it takes the plain form of a formatted batch, and nothing else.
        """
        units = list(refused.units)
        limit = self.capabilities.text
        if failure is FailureClass.INVALID_PAYLOAD and code in (None, "format_unsupported"):
            if all(unit.format == "plain" for unit in units):
                return None
            units = [msgspec.structs.replace(unit, format="plain") for unit in units]
        elif failure is FailureClass.INVALID_PAYLOAD and code == "too_long":
            limit = TextLimit(max(limit.max // 2, 40), limit.unit, chunking=True)
            pieces = [with_text(unit, text) for unit in units for text in _pieces(unit, limit)]
            if len(pieces) == len(units):
                return None
            units = [msgspec.structs.replace(unit, index=index) for index, unit in enumerate(pieces)]
        elif code in MEDIA_REFUSED:
            units = [RenderedUnit(u.index, text=note(u.media)) if u.media is not None else u for u in units]
        elif code == "reply_target_gone":
            units[0] = msgspec.structs.replace(units[0], payload={**(units[0].payload or {}), "no_reply": True})
        else:
            return None
        return RenderedBatch(tuple(units), refused.atomicity, marked(units, limit))

    def _accepted(
        self, unit: RenderedUnit, body: dict[str, Any], answer: Answer, request_id: str | None, *, duplicate: bool
    ) -> Accepted | Unknown:
        found = body.get("id")
        if isinstance(found, bool) or not isinstance(found, int | str) or found == "":
            if self.capabilities.receipt == "none" or duplicate:
                return Accepted(None, duplicate=duplicate, status=answer.status, request_id=request_id)
            return Unknown(Cause.NO_IDENTITY, answer.excerpt(), status=answer.status, request_id=request_id)
        at = body.get("at")
        platform_id, thread, reply_to = str(found), body.get("thread"), body.get("reply_to")
        parts: tuple[ReceiptPart, ...] = ()
        if isinstance(thread, str) or isinstance(reply_to, str):
            part = ReceiptPart(unit.index, platform_id, unit.kind, _text_or_none(thread), _text_or_none(reply_to))
            parts = (part,)
        return Accepted(
            platform_id,
            parts,
            duplicate=duplicate,
            status=answer.status,
            request_id=request_id,
            sent_at=at if isinstance(at, int) and not isinstance(at, bool) else None,
        )

    def _refused(
        self, unit: RenderedUnit, context: SendContext, error: dict[str, Any], answer: Answer, request_id: str | None
    ) -> Outcome:
        """A conflict on our own key is a receipt, with or without the id (FAIL-7)."""
        if error.get("code") == DUPLICATE and error.get("key") == context.provider_key:
            return self._accepted(unit, error, answer, request_id, duplicate=True)
        named = error.get("class")
        known = isinstance(named, str) and named in FailureClass._value2member_map_
        failure = FailureClass(named) if known else FailureClass.UNKNOWN
        if failure is FailureClass.UNKNOWN or (answer.status >= 500 and error.get("accepted") is not False):
            return without_class(answer, request_id=request_id)
        return self._rejected(failure, error, answer, request_id)

    def _rejected(
        self, failure: FailureClass, error: dict[str, Any], answer: Answer, request_id: str | None
    ) -> Rejected:
        scope: Scope = "lane" if error.get("scope") == "lane" else "account"
        return Rejected(
            failure,
            str(error.get("detail") or answer.excerpt())[:ERROR_TEXT_MAX_CHARS],
            code=_text_or_none(error.get("code")),
            status=answer.status,
            request_id=request_id,
            retry_after_s=retry_after_s(answer),
            scope=scope if failure is FailureClass.RATE_LIMIT else "lane",
        )

    def _look_up(self, unit: RenderedUnit, context: SendContext) -> Request:
        return Request("GET", "/v1/messages", (("key", context.provider_key),))

    def _parse_look_up(self, unit: RenderedUnit, context: SendContext, answers: Sequence[Answer]) -> Verdict:
        answer = answers[-1]
        body = answer.json() or {}
        messages = body.get("messages")
        evidence: dict[str, Any] = {"method": "by_key", "status": answer.status}
        if answer.status != 200 or not isinstance(messages, list):
            return Unresolved(answer.excerpt(), evidence=evidence)
        found = [
            entry for entry in msgspec.convert(messages, list[dict[str, Any]]) if entry.get("action") == context.action
        ]
        evidence["ids"] = [str(entry.get("id")) for entry in found]
        for entry in found:
            receipt = self._accepted(unit, entry, answer, answer.headers.get("x-request-id"), duplicate=True)
            if isinstance(receipt, Accepted):
                return Sent(msgspec.structs.replace(receipt, duplicate=False), evidence)
        look = self.capabilities.reconcile
        if look is not None and look.can_prove_absence and body.get("complete") is True:
            return NotSent(evidence)
        return Unresolved("not found, which proves nothing here", evidence=evidence)


def qa_channel(
    base_url: str, *, token: str = "", name: str = "qa", account: str = "default", **more: Any
) -> HttpChannel:
    """A channel to our platform; `more` as in `QaAdapter`."""
    return HttpChannel(QaAdapter(base_url, token=token, name=name, account=account, **more))


def _said_origin(event: Event) -> Origin | None:
    return decode(event.get("origin"))


def _pieces(unit: RenderedUnit, limit: TextLimit) -> list[str]:
    if unit.kind != "text" or not unit.text:
        return [unit.text or ""]
    return split(unit.text, limit)


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
