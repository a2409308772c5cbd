"""Matrix: sending text into rooms, over the client-server API (v1.1 and later, `/_matrix/client/v3`).

The transaction id is our stored provider key, so that a resend within the window returns the event that stands instead
of making another. What the homeserver remembers belongs to one device of one user: a new token of the same device keeps
it, another device does not, and neither does a device that was logged out and made again under its old id. So never
log the bot out: log it in again with its device id.

It does not edit, redact, upload or `/sync` yet; the capabilities say so. Markdown goes out as it is written. HTML goes
out as `formatted_body` with a plain text beside it, and as that plain text alone where it is too long for one event. A
thread's messages name its root, and the first event of a reply names the event that it answers.

Source: https://spec.matrix.org/latest/client-server-api/; what is said of Synapse was tried on 1.163.2.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping
from html import escape, unescape
from typing import Any, Final
from urllib.parse import quote

import msgspec

from ..ledger.errors import InvalidConfig, InvalidMessage
from ..ledger.limits import ERROR_TEXT_MAX_CHARS
from ..ledger.message import Body, Message, RenderedBatch, RenderedUnit
from ..ledger.outcome import Accepted, FailureClass, Outcome, Rejected
from ..version import __version__
from .exchange import Answer, Request, retry_after_s, without_class
from .identified import IdentifiedChannel
from .surface import Capabilities, Idempotency, RenderContext, SendContext, TextLimit
from .text import DUPLICATE_MARKER, render_text, shown

EVENT_MAX_BYTES: Final = 65_536
"""The longest whole event, as canonical JSON, with all that the homeserver adds."""
ENVELOPE_BYTES: Final = 5_000
"""Left free of it for sender, room, hashes, signature, up to 20 previous events, and a relation."""
TEXT_MAX_BYTES: Final = 60_000
ID_MAX_BYTES: Final = 255
WINDOW_S: Final = 86_400.0
"""How long Synapse keeps transaction ids in its database."""
WHOAMI: Final = Request("GET", "/_matrix/client/v3/account/whoami")

MATRIX: Final = Capabilities(
    text=TextLimit(TEXT_MAX_BYTES, "bytes", chunking=True),
    idempotency=Idempotency(
        "client_key", "txnId", WINDOW_S, scope="device", on_duplicate="returns_receipt", evidence="proved"
    ),
    threads=True,
    settle_s=15.0,
)

_SHRINKING: Final = tuple(
    msgspec.structs.replace(MATRIX, text=msgspec.structs.replace(MATRIX.text, max=TEXT_MAX_BYTES // divisor))
    for divisor in (1, 2, 4, 8)
)
"""Tried until each event fits, as the last always does: JSON writes a character in at most six times its bytes."""

_TXN_ID: Final = re.compile(rf"[0-9A-Za-z._~-]{{1,{ID_MAX_BYTES}}}")
_FAILURES: Final = {
    400: FailureClass.INVALID_PAYLOAD,
    401: FailureClass.AUTH,
    403: FailureClass.PERMISSION,
    404: FailureClass.NOT_FOUND,
    413: FailureClass.INVALID_PAYLOAD,
    429: FailureClass.RATE_LIMIT,
}
"""Of a refusal with an `errcode`. Synapse says 403 also of a room that does not exist."""

_TAG: Final = re.compile(r"<(?P<closing>/?)(?P<name>[A-Za-z][A-Za-z0-9]*+)(?P<rest>[^<>]*+)>|<!--[^<>]*+>")
_HREF: Final = re.compile(r"""\shref\s*+=\s*+(?:"([^"]*+)"|'([^']*+)')""", re.IGNORECASE)
_BLOCKS: Final = "p div blockquote pre ul ol table tr h1 h2 h3 h4 h5 h6 hr"
_LINES: Final = {(name, closing): "\n" for name in _BLOCKS.split() for closing in (False, True)} | {
    ("p", False): "\n\n",
    ("p", True): "\n\n",
    ("br", False): "\n",
    ("li", False): "\n- ",
}
"""What an opening or a closing tag comes to in plain text."""


class MatrixAdapter:
    """One user's device on one homeserver, as pure functions. `MatrixChannel` makes a channel of it.

    It is ready once the homeserver has said whose token it is: that names the device. A token that the homeserver
    refuses makes it ready too, so that its intents are refused and held as `auth` instead of waiting without a word.
    """

    def __init__(
        self, homeserver: str, *, user_id: str, token: str, device_id: str | None, name: str, account: str | None
    ) -> None:
        if not re.fullmatch(r"@[^:\s]+:\S+", user_id):
            raise InvalidConfig(f"channel {name!r} has the user id {user_id!r}: give one like @bot:example.org")
        if not token:
            raise InvalidConfig(f"channel {name!r} has no access token: log in as {user_id} and give its token")
        self.base_url = homeserver.rstrip("/")
        self.name, self.account, self.version = name, account or user_id, __version__
        self.capabilities = MATRIX
        self.user_id = user_id
        self._device_id = device_id
        self._token = token
        self._known = False
        self._refused = False

    def __repr__(self) -> str:
        return f"MatrixAdapter({self.base_url!r}, user_id={self.user_id!r}, device_id={self._device_id!r})"

    # Whose token it is.

    @property
    def ready(self) -> bool:
        return self._known or self._refused

    @property
    def credential(self) -> str:
        """Homeserver, user and device, to which transaction ids belong; the token's digest while no device is known."""
        if self._device_id is not None:
            return f"{self.base_url} {self.user_id} device {self._device_id}"
        return f"{self.base_url} {self.user_id} token {hashlib.sha256(self._token.encode()).hexdigest()}"

    @property
    def config(self) -> str:
        return f"{self.base_url} {self.user_id} {self._token}"

    def authorize(self, request: Request) -> Mapping[str, str]:
        return {"authorization": f"Bearer {self._token}"}

    def whoami(self) -> Request:
        return WHOAMI

    def learn(self, answer: Answer) -> None:
        """Takes in the answer to `whoami`. One that says nothing of the token changes nothing.

        Raises `InvalidConfig` where the token is not this user's and device's: its window would be another's.
        """
        said = answer.json() or {}
        if answer.status in (401, 403) and _text(said, "errcode"):
            self._refused = True
        if answer.status != 200 or not _text(said, "user_id"):
            return
        if said["user_id"] != self.user_id:
            raise InvalidConfig(
                f"channel {self.name!r} is to be {self.user_id}, and its token is of {shown(said['user_id'])}: "
                "give that user's token"
            )
        device = _text(said, "device_id")
        if device is None:
            raise InvalidConfig(
                f"channel {self.name!r} has a token without a device, and resends are recognised per device: "
                "log in with a device id"
            )
        if self._device_id not in (None, device):
            raise InvalidConfig(
                f"channel {self.name!r} is to be device {self._device_id!r}, and its token is of device "
                f"{shown(device)}: log in with that device id, or leave it out to take the token's"
            )
        self._device_id, self._known, self._refused = device, True, False

    # What goes out.

    def render(self, message: Message, context: RenderContext) -> RenderedBatch:
        """Events that fit, measured as they will be encoded. Raises `InvalidMessage` for a target that is no room."""
        room = message.target.id
        if not room.startswith("!") or len(room.encode()) > ID_MAX_BYTES:
            raise InvalidMessage(
                f"{shown(room)} is no Matrix room: give the room id, which starts with !, also of a direct chat"
            )
        batch = self._render(message)
        if message.body is None or message.body.format != "html":
            return batch
        plain = plain_text(message.body.text)
        batch = self._render(msgspec.structs.replace(message, body=Body(plain)))
        return _with_html(batch, plain, message.body.text) or batch

    def _render(self, message: Message) -> RenderedBatch:
        tries = (render_text(message, able, channel=self.name) for able in _SHRINKING)
        return next(batch for batch in tries if _all_fit(batch))

    def build(self, unit: RenderedUnit, context: SendContext) -> Request:
        """The one `PUT`. Raises `InvalidMessage` for what cannot be asked of a room yet, or a key that is no txnId."""
        if context.action != "send":
            raise InvalidMessage(f"this Matrix channel cannot {context.action} yet: send a new message instead")
        if not _TXN_ID.fullmatch(context.provider_key):
            raise InvalidMessage(
                f"{shown(context.provider_key)} is no transaction id: use up to {ID_MAX_BYTES} of 0-9 A-Z a-z . _ ~ -"
            )
        room, txn_id = quote(context.target.id, safe=""), quote(context.provider_key, safe="")
        content = _content(unit)
        reply_to = context.reply_to if unit.index == 0 else None
        if relates_to := _relates_to(context.target.thread, reply_to):
            content["m.relates_to"] = relates_to
        return Request.of_json("PUT", f"/_matrix/client/v3/rooms/{room}/send/m.room.message/{txn_id}", content)

    # What came of it.

    def parse(self, unit: RenderedUnit, context: SendContext, request: Request, answer: Answer) -> Outcome:
        """A refusal counts only with an `errcode`: a bare status may be of a proxy that had passed the request on."""
        said = answer.json()
        if said is None:
            return without_class(answer)
        if answer.status == 200:
            return Accepted(_text(said, "event_id"), status=200)
        code, failure = _text(said, "errcode"), _FAILURES.get(answer.status)
        if code is None or failure is None:
            return without_class(answer)
        limited = failure is FailureClass.RATE_LIMIT
        return Rejected(
            failure,
            (_text(said, "error") or "")[:ERROR_TEXT_MAX_CHARS],
            code=code[:ERROR_TEXT_MAX_CHARS],
            status=answer.status,
            retry_after_s=retry_after_s(answer) if limited else None,
            scope="account" if limited else "lane",
        )


class MatrixChannel(IdentifiedChannel):
    """`MatrixChannel("https://matrix.example.org", user_id="@bot:example.org", token=...)`.

    Without `device_id` the token's own is taken; with it, a token of another device is refused. `open()` asks the
    homeserver once and raises `InvalidConfig` where the token is somebody else's. Where no answer comes the channel is
    not ready, which costs no attempt, and asks again until it is or until `close()`; `pause` waits in between.
    """

    def __init__(
        self,
        homeserver: str,
        *,
        user_id: str,
        token: str,
        device_id: str | None = None,
        name: str = "matrix",
        account: str | None = None,
        pause: Callable[[float], Awaitable[None]] | None = None,
    ) -> None:
        self._matrix = MatrixAdapter(
            homeserver, user_id=user_id, token=token, device_id=device_id, name=name, account=account
        )
        super().__init__(self._matrix, pause=pause)


def plain_text(html: str) -> str:
    """What a client without HTML shows: the text with its lines and list items, and links behind their names."""
    parts: list[str] = []
    at, verbatim, link, link_from = 0, False, "", 0
    for tag in _TAG.finditer(html + "<br>"):
        text = unescape(html[at : tag.start()])
        if not verbatim:
            text = re.sub(r"\s+", " ", text)
            text = text if parts and not parts[-1].endswith("\n") else text.lstrip()
        if text:
            parts.append(text)
        at, name, closing = tag.end(), (tag["name"] or "").lower(), bool(tag["closing"])
        if name == "pre":
            verbatim = not closing
        elif name == "a" and not closing:
            href = _HREF.search(tag["rest"])
            link, link_from = unescape(href[1] or href[2] or "") if href else "", len(parts)
        elif name == "a" and link:
            if link not in "".join(parts[link_from:]):
                parts.append(f" ({link})")
            link = ""
        if lines := _LINES.get((name, closing)):
            parts.append(lines)
    lines = [line.rstrip() for line in "".join(parts).split("\n")]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")


def _with_html(batch: RenderedBatch, plain: str, html: str) -> RenderedBatch | None:
    """The batch with the caller's HTML beside its one text, or None where that is too long for one event."""
    if len(batch.units) != 1 or len(batch.marked) != 1:
        return None
    notes = (batch.units[0].text or "").removeprefix(plain)
    html += escape(notes, quote=False).replace("\n", "<br>")
    unit, marked = (
        msgspec.structs.replace(one, format="html", payload={"formatted_body": formatted})
        for one, formatted in ((batch.units[0], html), (batch.marked[0], DUPLICATE_MARKER + html))
    )
    formatted = RenderedBatch((unit,), marked=(marked,))
    return formatted if _all_fit(formatted) else None


def _all_fit(batch: RenderedBatch) -> bool:
    most = EVENT_MAX_BYTES - ENVELOPE_BYTES
    return all(len(msgspec.json.encode(_content(unit))) <= most for unit in (*batch.units, *batch.marked))


def _content(unit: RenderedUnit) -> dict[str, Any]:
    content: dict[str, Any] = {"msgtype": "m.text", "body": unit.text or ""}
    if unit.payload is not None and "formatted_body" in unit.payload:
        content |= {"format": "org.matrix.custom.html", "formatted_body": unit.payload["formatted_body"]}
    return content


def _relates_to(thread: str | None, reply_to: str | None) -> dict[str, Any] | None:
    """Clients without threads show a thread's messages as replies; `is_falling_back` says that it is only for them."""
    if thread is None:
        return None if reply_to is None else {"m.in_reply_to": {"event_id": reply_to}}
    return {
        "rel_type": "m.thread",
        "event_id": thread,
        "is_falling_back": reply_to is None,
        "m.in_reply_to": {"event_id": reply_to or thread},
    }


def _text(body: Mapping[str, Any], key: str) -> str | None:
    value = body.get(key)
    return value if isinstance(value, str) and value else None
