"""Matrix: messages in rooms, edited and redacted, over the client-server API (v1.1 and later, `/_matrix/client/v3`).

The transaction id is our stored provider key, so that a resend within the window returns the event that stands instead
of making another. What the homeserver remembers belongs to one device of one user: a new token of the same device keeps
it, another device does not, and neither does a device that was logged out and made again under its old id. So never
log the bot out: log it in again with its device id. What became of a request is looked up in the room first.

What comes in is read by `/sync`, in `matrix_sync.py`. Files are uploaded, in the clear, and each shown by an event.
Markdown goes out as it is written. HTML goes out as `formatted_body` with a plain text beside it, and as that plain
text alone where it is too long for one event.

Source: https://spec.matrix.org/latest/client-server-api/; what is said of Synapse was tried on 1.163.2. The operator's
side is in docs/matrix.md.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from msgspec.structs import replace

from ..ledger.errors import InvalidConfig, InvalidMessage
from ..ledger.limits import ERROR_TEXT_MAX_CHARS
from ..ledger.message import Message, RenderedBatch, RenderedUnit
from ..ledger.origin import Origin
from ..ledger.outcome import Accepted, FailureClass, Outcome, Rejected, Unknown, Verdict
from ..version import __version__
from .exchange import Answer, Request, retry_after_s, without_class
from .identified import IdentifiedChannel
from .matrix_events import ID_MAX_BYTES, MESSAGE, TEXT_MAX_BYTES, edited_content, receipt, render, sent_content, text_of
from .matrix_history import HORIZON_S, judge, look_up, room_path
from .matrix_media import LIMITS, UPLOADING, largest_bytes, upload, uploaded
from .matrix_origin import decoded, encoded, tagged
from .matrix_sync import MatrixSync
from .receiving import Event
from .surface import Ack, Capabilities, Change, Idempotency, Lookup, RenderContext, SendContext, TextLimit
from .text import shown

WINDOW_S: Final = 86_400.0
"""How long Synapse keeps transaction ids in its database. The specification names no time."""
WHOAMI: Final = Request("GET", "/_matrix/client/v3/account/whoami")

MATRIX: Final = Capabilities(
    text=TextLimit(TEXT_MAX_BYTES, "bytes", chunking=True),
    idempotency=Idempotency(
        "client_key", "txnId", WINDOW_S, scope="device", on_duplicate="returns_receipt", evidence="proved"
    ),
    reconcile=Lookup("history_match", HORIZON_S, can_prove_absence=True, evidence="proved"),
    edit=Change(),
    delete=Change(),
    threads=True,
    carries=("reply_to", "hooks"),
    attachments="upload",
    origin="native",
    ack=Ack("since"),
    settle_s=15.0,
)

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


class MatrixAdapter(MatrixSync):
    """One user's device on one homeserver, as pure functions. `MatrixChannel` makes a channel of it.

    It is ready once the homeserver has said whose token it is: that names the device. A token that the homeserver
    refuses makes it ready too, so that its intents are refused and held as `auth` instead of waiting without a word.
    """

    def __init__(
        self,
        homeserver: str,
        *,
        user_id: str,
        token: str,
        device_id: str | None,
        name: str,
        account: str | None,
        window_s: float = WINDOW_S,
    ) -> None:
        if not re.fullmatch(r"@[^:\s]+:\S+", user_id):
            raise InvalidConfig(f"channel {name!r} has the user id {user_id!r}: give one like @bot:example.org")
        if not token:
            raise InvalidConfig(f"channel {name!r} has no access token: log in as {user_id} and give its token")
        self.base_url = homeserver.rstrip("/")
        self.name, self.account, self.version = name, account or user_id, __version__
        self.capabilities = _within(window_s)
        self.user_id = user_id
        self._device_id = device_id
        self._token = token
        self._known = False
        self._refused = False
        self._members = {}

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
        if answer.status in (401, 403) and text_of(said, "errcode"):
            self._refused = True
        if answer.status != 200 or not text_of(said, "user_id"):
            return
        if said["user_id"] != self.user_id:
            raise InvalidConfig(
                f"channel {self.name!r} is to be {self.user_id}, and its token is of {shown(said['user_id'])}: "
                "give that user's token"
            )
        device = text_of(said, "device_id")
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

    @property
    def limits(self) -> Sequence[Request]:
        return LIMITS

    def learn_limit(self, answer: Answer) -> bool:
        """Takes in how much the homeserver takes of a file, where the answer says it."""
        largest = largest_bytes(answer)
        if largest is not None:
            self.capabilities = replace(self.capabilities, media_max_bytes=largest)
        return largest is not None

    # What goes out.

    def render(self, message: Message, context: RenderContext) -> RenderedBatch:
        return render(message, self.capabilities, channel=self.name, edit=context.action == "edit")

    def build(self, unit: RenderedUnit, context: SendContext) -> Request:
        """The one `PUT`. Raises `InvalidMessage` for a key that is no txnId, or a change without its object."""
        if not _TXN_ID.fullmatch(context.provider_key):
            raise InvalidMessage(
                f"{shown(context.provider_key)} is no transaction id: use up to {ID_MAX_BYTES} of 0-9 A-Z a-z . _ ~ -"
            )
        room, txn_id = room_path(context), quote(context.provider_key, safe="")
        if context.action == "send":
            content = tagged(sent_content(unit, context), self.encode_origin(context.origin))
            return Request.of_json("PUT", f"{room}/send/{MESSAGE}/{txn_id}", content)
        of = context.of_platform_id
        if not of:
            raise InvalidMessage(f"there is no event to {context.action}: its receipt names none")
        if context.action == "edit":
            content = tagged(edited_content(unit, of), self.encode_origin(context.origin))
            return Request.of_json("PUT", f"{room}/send/{MESSAGE}/{txn_id}", content)
        return Request.of_json("PUT", f"{room}/redact/{quote(of, safe='')}/{txn_id}", {})

    def encode_origin(self, origin: Origin) -> dict[str, Any]:
        return encoded(origin, self.user_id)

    def decode_origin(self, event: Event) -> Origin | None:
        return decoded(event)

    def prepare(self, unit: RenderedUnit, context: SendContext) -> Request | None:
        return upload(unit, context)

    def prepared(self, unit: RenderedUnit, context: SendContext, answer: Answer) -> RenderedUnit | Rejected | Unknown:
        ready = uploaded(unit, answer)
        if ready is not None:
            return ready
        outcome = self.parse(unit, context, UPLOADING, answer)
        return without_class(answer) if isinstance(outcome, Accepted) else outcome

    # What came of it.

    def parse(self, unit: RenderedUnit, context: SendContext, request: Request, answer: Answer) -> Outcome:
        """A refusal counts only with an `errcode`: a bare status may be of a proxy that had passed the request on."""
        said = answer.json()
        if said is None:
            return without_class(answer)
        if answer.status == 200:
            return receipt(unit, context, text_of(said, "event_id"), 200)
        code, failure = text_of(said, "errcode"), _FAILURES.get(answer.status)
        if code is None or failure is None:
            return without_class(answer)
        limited = failure is FailureClass.RATE_LIMIT
        return Rejected(
            failure,
            (text_of(said, "error") or "")[:ERROR_TEXT_MAX_CHARS],
            code=code[:ERROR_TEXT_MAX_CHARS],
            status=answer.status,
            retry_after_s=retry_after_s(answer) if limited else None,
            scope="account" if limited else "lane",
        )

    # What became of it.

    def look_up(self, unit: RenderedUnit, context: SendContext) -> Request:
        return look_up(context, self.user_id)

    def parse_look_up(self, unit: RenderedUnit, context: SendContext, answers: Sequence[Answer]) -> Verdict | Request:
        return judge(unit, context, self.user_id, answers)


class MatrixChannel(IdentifiedChannel):
    """`MatrixChannel("https://matrix.example.org", user_id="@bot:example.org", token=...)`.

    Without `device_id` the token's own is taken; with it, a token of another device is refused. `open()` asks the
    homeserver once and raises `InvalidConfig` where the token is somebody else's. Where no answer comes the channel is
    not ready, which costs no attempt, and asks again until it is or until `close()`; `pause` waits in between.

    `window_s`: how long this homeserver recognises a transaction id. The default is Synapse's, which was tried.
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
        window_s: float = WINDOW_S,
        pause: Callable[[float], Awaitable[None]] | None = None,
    ) -> None:
        self._matrix = MatrixAdapter(
            homeserver,
            user_id=user_id,
            token=token,
            device_id=device_id,
            name=name,
            account=account,
            window_s=window_s,
        )
        super().__init__(self._matrix, pause=pause)


def _within(window_s: float) -> Capabilities:
    if window_s == WINDOW_S or MATRIX.idempotency is None:
        return MATRIX
    return replace(MATRIX, idempotency=replace(MATRIX.idempotency, window_s=window_s, evidence="documented"))
