"""Telegram: messages in chats, groups, channels and topics, over the Bot API, and what people write to the bot.

Telegram knows no key of ours and lets a bot read nothing back: what became of a request without an answer is never
known. It is held for a person, or, where the message's policy says at least once, a copy with the visible marker goes
out. On the way in it repeats an update until it is asked for a later one, so nothing is lost that was not recorded.

The bot's token stands in the address of every request. It is put onto the wire by the driver and stands nowhere else.

Source: https://core.telegram.org/bots/api (10.1). The operator's side is in docs/telegram.md.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from ..ledger.errors import InvalidConfig
from ..ledger.inbound_events import AckPolicy
from ..ledger.message import Message, RenderedBatch, RenderedUnit
from ..ledger.outcome import FailureClass, Outcome, Rejected, Unknown
from ..version import __version__
from . import telegram_answers, telegram_send, telegram_updates
from .exchange import Answer, Request, without_class
from .identified import IdentifiedChannel
from .receiving import Arrival, Event, Ignored, Incoming, Polled, Refused
from .secret_path import SecretPath
from .surface import Ack, Capabilities, Change, RenderContext, SendContext, TextLimit
from .text import shown

SERVER: Final = "https://api.telegram.org"
TELEGRAM: Final = Capabilities(
    text=TextLimit(4096, "utf16", chunking=True),
    edit=Change(),
    delete=Change(48 * 3600.0),
    threads=True,
    attachments="upload",
    media_max_bytes=50_000_000,
    origin="registry",
    ack=Ack("offset"),
    per_second=25.0,
)
"""Of the public server. It says 30 messages a second; a bot that works off what it owes stays below."""
GET_ME: Final = Request("POST", "/getMe")
UPDATES_MAX: Final = 100
"""How many updates one poll brings."""
POLL_WAIT_MAX_S: Final = 50
SECRET_HEADER: Final = "x-telegram-bot-api-secret-token"

_TOKEN: Final = re.compile(r"(?P<bot>[1-9][0-9]{0,15}):(?P<secret>[A-Za-z0-9_-]{16,128})")
_USERNAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{3,31}")
_SECRET: Final = re.compile(r"[A-Za-z0-9_-]{1,256}")


class TelegramAdapter:
    """One bot, as pure functions. `TelegramChannel` makes a channel of it.

    It is ready once the server has said who the bot is, or has refused the token: then its intents are refused too, and
    held as `auth`, instead of waiting without a word.
    """

    ack_policy: AckPolicy = "after_record"
    poll_acknowledges = True

    def __init__(
        self,
        token: str,
        *,
        name: str,
        account: str | None,
        username: str | None,
        webhook_secret: str | None,
        polling: bool | None,
        base_url: str,
        media_max_bytes: int,
    ) -> None:
        parts = _TOKEN.fullmatch(token)
        if parts is None:
            raise InvalidConfig(
                f"channel {name!r} has a bot token of another form than 123456:ABC-DEF: give the one of @BotFather"
            )
        if re.search(r"/bot[0-9]|\d+:[A-Za-z0-9_-]{16}", base_url):
            raise InvalidConfig(f"channel {name!r} has a token in its base URL: give the server's address alone")
        username = None if username is None else username.removeprefix("@")
        if username is not None and not _USERNAME.fullmatch(username):
            raise InvalidConfig(f"channel {name!r} has the username {shown(username)}: give one like example_bot")
        if webhook_secret is not None and not _SECRET.fullmatch(webhook_secret):
            raise InvalidConfig(
                f"channel {name!r} has a webhook secret of another form: use 1 to 256 of A-Z a-z 0-9 _ -"
            )
        self.base_url = base_url.rstrip("/")
        self.bot_id, self.username = int(parts["bot"]), username
        self.name, self.account, self.version = name, account or parts["bot"], __version__
        self.capabilities = replace(TELEGRAM, media_max_bytes=media_max_bytes)
        self.secret_path = SecretPath(f"/bot{token}", parts["secret"])
        self._token = token
        self._webhook_secret = webhook_secret
        self.polling = webhook_secret is None if polling is None else polling
        self._known = False
        self._refused = False

    def __repr__(self) -> str:
        return f"TelegramAdapter({self.base_url!r}, bot={self.bot_id}, username={self.username!r})"

    # Who the bot is.

    @property
    def ready(self) -> bool:
        return self._known or self._refused

    @property
    def credential(self) -> str:
        return f"{self.base_url} {self._token}"

    @property
    def config(self) -> str:
        return f"{self.base_url} {self._token}"

    def authorize(self, request: Request) -> Mapping[str, str]:
        return {}

    def whoami(self) -> Request:
        return GET_ME

    def learn(self, answer: Answer) -> None:
        """Takes in the answer to `getMe`. One that says nothing of the bot changes nothing.

        Raises `InvalidConfig` where the server speaks of another bot than the token or the configuration.
        """
        said = answer.json() or {}
        refused = telegram_answers.refusal(answer)
        if isinstance(refused, Rejected) and refused.failure is FailureClass.AUTH:
            self._refused = True
        result = said.get("result")
        if answer.status != 200 or said.get("ok") is not True or not isinstance(result, dict):
            return
        bot = msgspec.convert(result, dict[str, Any])
        if bot.get("id") != self.bot_id:
            raise InvalidConfig(
                f"channel {self.name!r} has the token of bot {self.bot_id}, and {self.base_url} says that it is "
                "another: check the address of the server"
            )
        username = bot.get("username")
        if not isinstance(username, str) or not _USERNAME.fullmatch(username):
            username = self.username
        if self.username is not None and username is not None and username.lower() != self.username.lower():
            raise InvalidConfig(
                f"channel {self.name!r} is to be @{self.username}, and its token is of @{username}: give that bot's "
                "token, or leave the username out"
            )
        self.username, self._known, self._refused = username, True, False

    # What goes out.

    def render(self, message: Message, context: RenderContext) -> RenderedBatch:
        return telegram_send.render(message, self.capabilities, channel=self.name, edit=context.action == "edit")

    def build(self, unit: RenderedUnit, context: SendContext) -> Request:
        return telegram_send.build(unit, context)

    def parse(self, unit: RenderedUnit, context: SendContext, request: Request, answer: Answer) -> Outcome:
        return telegram_answers.parse(unit, context, answer)

    def fallback(
        self,
        message: Message,
        refused: RenderedBatch,
        failure: FailureClass,
        context: RenderContext,
        code: str | None = None,
    ) -> RenderedBatch | None:
        """Another plan for all of a batch that was refused for its form; see `telegram_send.fallback`."""
        return telegram_send.fallback(refused, code)

    # What comes in.

    def dedupe_key(self, event: Event) -> str:
        return telegram_updates.dedupe_key(event)

    def normalize(self, event: Event) -> Incoming | Ignored:
        return telegram_updates.normalize(event, channel=self.name, bot=self.bot_id, username=self.username)

    def poll(self, cursor: str | None, wait_s: float) -> Request:
        """`cursor` is the number of the first update that is wanted: all before it are forgotten there."""
        fields: dict[str, Any] = {
            "allowed_updates": list(telegram_updates.ALLOWED),
            "limit": UPDATES_MAX,
            "timeout": max(0, min(int(wait_s), POLL_WAIT_MAX_S)),
        }
        if cursor is not None:
            fields["offset"] = int(cursor)
        return Request.of_json("POST", "/getUpdates", fields)

    def parse_poll(self, cursor: str | None, answer: Answer) -> Polled | Rejected | Unknown:
        said = answer.json() or {}
        result = said.get("result")
        if answer.status != 200 or said.get("ok") is not True or not isinstance(result, list):
            return telegram_answers.refusal(answer) if said.get("ok") is False else without_class(answer)
        try:
            events = msgspec.convert(result, list[dict[str, Any]])
        except msgspec.ValidationError:
            return without_class(answer)
        arrivals: list[Arrival] = []
        last = cursor
        for event in events:
            try:
                last = str(int(self.dedupe_key(event)) + 1)
            except ValueError:
                arrivals.append(Arrival(event))  # it cannot be confirmed by itself, only with a later one
            else:
                arrivals.append(Arrival(event, last))
        return Polled(tuple(arrivals), last if arrivals else None)

    def verify(self, headers: Mapping[str, str], body: bytes, at: int) -> None:
        """By the secret that `setWebhook` was given. Without one here, nothing is taken: anybody could have sent it."""
        if self._webhook_secret is None:
            raise Refused(403, f"channel {self.name!r} has no webhook secret: give the one that setWebhook was given")
        given = headers.get(SECRET_HEADER, "")
        if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), self._webhook_secret.encode()):
            raise Refused(401, "the secret token is missing" if not given else "the secret token is another")

    def unpack(self, headers: Mapping[str, str], body: bytes) -> Sequence[Event]:
        """The one update of a request."""
        try:
            return (msgspec.json.decode(body, type=dict[str, Any]),)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise Refused(400, "the body is no update: no JSON object") from None


class TelegramChannel(IdentifiedChannel):
    """`TelegramChannel(token)`, with the token of @BotFather.

    `open()` asks who the bot is and raises `InvalidConfig` where that is not the one that is meant; where no answer
    comes the channel is not ready, which costs no attempt, and asks again until it is or until `close()`; `pause` waits
    in between. `username` needs not be given: it is learned there.

    `polling`: whether it fetches what comes by itself where the gateway has a handler; None is yes, unless there is a
    `webhook_secret`, the one that `setWebhook` was given. Telegram does one of the two.

    `base_url` and `media_max_bytes` are of another server: one of one's own takes larger files.
    """

    verify: Callable[[Mapping[str, str], bytes, int], None]
    unpack: Callable[[Mapping[str, str], bytes], Sequence[Event]]
    """For a webhook; see `adapters.receiving.Hooked`."""

    def __init__(
        self,
        token: str,
        *,
        name: str = "telegram",
        account: str | None = None,
        username: str | None = None,
        webhook_secret: str | None = None,
        polling: bool | None = None,
        base_url: str = SERVER,
        media_max_bytes: int = 50_000_000,
        pause: Callable[[float], Awaitable[None]] | None = None,
    ) -> None:
        self._telegram = TelegramAdapter(
            token,
            name=name,
            account=account,
            username=username,
            webhook_secret=webhook_secret,
            polling=polling,
            base_url=base_url,
            media_max_bytes=media_max_bytes,
        )
        super().__init__(self._telegram, pause=pause)
