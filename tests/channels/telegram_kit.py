"""What the tests of the Telegram channel share: channels, answers as the Bot API gives them, and what a chat shows."""

from __future__ import annotations

import json
import re
from typing import Any

from msgledger.adapters.exchange import Answer
from msgledger.adapters.surface import Channel, RenderContext
from msgledger.adapters.telegram import TelegramAdapter, TelegramChannel
from msgledger.ledger.message import Message, RenderedBatch, Target

from ..counterparts.crabline_telegram import CrablineTelegram
from ..counterparts.proxy import Fate, Proxy, Rule
from .contract import Bench, Seen

SECRET = "AAF-not_a_real_secret-0123456789"
TOKEN = f"424242:{SECRET}"
CHAT = Target.direct("telegram", "7001")
GROUP = Target.group("telegram", "-1001234567890")


def offline(**more: Any) -> TelegramAdapter:
    """One that speaks to nobody."""
    adapter = TelegramChannel(TOKEN, **more).adapter
    assert isinstance(adapter, TelegramAdapter)
    return adapter


def channel_of(server: CrablineTelegram, url: str | None = None, **more: Any) -> TelegramChannel:
    return TelegramChannel(server.token, base_url=url or server.url, **more)


def plan(message: Message, action: Any = "send", **more: Any) -> RenderedBatch:
    return offline(**more).render(message, RenderContext(at=1, intent="i", action=action))


def answer(status: int, body: object, **headers: str) -> Answer:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Answer(status, headers, raw)


def refusal(code: int, description: str, **parameters: Any) -> Answer:
    """As the Bot API says no."""
    said: dict[str, Any] = {"ok": False, "error_code": code, "description": description}
    return answer(code, {**said, "parameters": parameters} if parameters else said)


def accepted(result: object) -> Answer:
    return answer(200, {"ok": True, "result": result})


def shown(proxy: Proxy, chat: str) -> list[Seen]:
    """What stands in the chat, by the calls that came by and what the server said of them."""
    seen: dict[str, Seen] = {}
    for one in proxy.passed:
        method = one.path.rpartition("/")[2]
        if one.status != 200 or not re.match("send|edit|delete", method):
            continue
        result = json.loads(one.answer)["result"]
        kind = one.headers.get("content-type", one.headers.get("Content-Type", ""))
        body = json.loads(one.body) if "json" in kind else {}
        if isinstance(result, dict) and str(result["chat"]["id"]) != chat:
            continue
        if method == "deleteMessage":
            seen.pop(str(body["message_id"]), None)
            continue
        id = str(result["message_id"])
        thread = result.get("message_thread_id")
        replied = body.get("reply_parameters", {}).get("message_id")
        url = next((body[key] for key in ("photo", "document", "video", "audio") if key in body), None)
        before = seen.get(id)
        seen[id] = Seen(
            id,
            result.get("text", result.get("caption", "")),
            before.thread if before else None if thread is None else str(thread),
            before.reply_to if before else None if replied is None else str(replied),
            url,
        )
    return list(seen.values())


class TelegramBench(Bench):
    thread, message = "7", "8"

    def __init__(self, server: CrablineTelegram, proxy: Proxy) -> None:
        self.server, self.proxy, self.secret = server, proxy, server.token.partition(":")[2]
        self.chat = server.create_chat()

    def channel(self) -> Channel:
        return channel_of(self.server, self.proxy.url)

    def target(self, thread: str | None = None) -> Target:
        return Target.direct("telegram", self.chat, thread=thread)

    def visible(self, target: Target) -> list[Seen]:
        return shown(self.proxy, self.chat)

    def lose_next_answer(self) -> None:
        self.proxy.set(Rule(Fate.LOSE_ANSWER, method="POST", path="/send"))
