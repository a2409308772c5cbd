"""The raw file: outside `content` no text, chat id, sender, key, error text or secret, on whatever path it came."""

from __future__ import annotations

import json
from typing import Any

from msgledger import Accepted, Attachment, Body, Message, NotSent, ReceiptPart, Rejected, Reply, Target, Unresolved

from .kit import Bench
from .platform import Request, drop, lose, raises, refuse

NEEDLES = {
    "chat": "chat-4915112345678",
    "thread": "thread-4711-raw",
    "space": "workspace-raw",
    "label": "Label of the Room",
    "text": "the text of the message",
    "sender": "sender-4915198765432",
    "reply": "reply-to-raw-id",
    "quote": "what they had said",
    "key": "key-with-chat-4915112345678",
    "session": "agent:main:plat:dm:4915112345678",
    "file": "private-plan.pdf",
    "error": "error text with chat-4915112345678",
    "token": "edit-token-raw",
    "url": "https://files.example/raw",
    "credential": "xoxb-secret-token",
    "config": "scopes=secret-setting",
    "raw": "raw-answer-of-the-platform",
}


def message(words: str) -> Message:
    target = Target(
        "group", "plat", NEEDLES["chat"], space=NEEDLES["space"], thread=NEEDLES["thread"], label=NEEDLES["label"]
    )
    return Message(
        target=target,
        body=Body(f"{NEEDLES['text']}: {words}"),
        attachments=(Attachment(NEEDLES["file"], url=NEEDLES["url"]),),
        relation=Reply(reply_to=NEEDLES["reply"], quote=NEEDLES["quote"]),
        sender=NEEDLES["sender"],
    )


async def told(request: Request) -> Accepted:
    id, _ = request.platform.apply(request)
    part = ReceiptPart(0, id, edit_token=NEEDLES["token"], url=NEEDLES["url"], thread=NEEDLES["thread"])
    return Accepted(id, parts=(part,), raw={"answer": NEEDLES["raw"]})


def rejected(failure: str) -> Any:
    async def behaviour(request: Request) -> Rejected:
        return Rejected(failure, NEEDLES["error"], code="code_of_the_platform")

    return behaviour


def test_no_content_stands_outside_content(bench: Bench) -> None:
    """DUR-2, SC-67, OB-17, GAP-9: over sends, edits, failures, look-ups, holds, cancels and a late record."""

    async def main() -> None:
        bench.platform.looks_up = True
        answers: list[Any] = [Unresolved(NEEDLES["error"], evidence={"pages": 2}), ValueError(NEEDLES["error"])]

        def look(unit: Any, context: Any) -> Any:
            answer = answers.pop(0) if answers else NotSent()
            if isinstance(answer, Exception):
                raise answer
            return answer

        bench.platform.look = look
        channel = bench.platform.channel(credential=NEEDLES["credential"], config=NEEDLES["config"])
        bench.platform.plan(
            told,
            told,
            rejected("transient"),
            told,
            rejected("invalid_payload"),
            rejected("auth"),
            raises(ValueError(NEEDLES["error"])),
            lose(),
            drop(),
            refuse,
        )
        async with bench.gateway(channel) as gateway:
            sent = await gateway.send(message("one"), key=NEEDLES["key"], session=NEEDLES["session"])
            await gateway.edit(sent, message("two"))
            for number in range(8):
                await gateway.send(message(f"number {number}"), ordered=False, max_attempts=3)
            await bench.clock.advance(300)
            await gateway.cancel(
                await gateway.send(message("x"), not_before=bench.clock.wall_ms() + 10**6, wait=False), "never mind"
            )
            async with gateway.sending(message("y")):
                pass

    bench.run(main())
    rows = bench.query("SELECT position, type, data FROM events ORDER BY position")
    assert len(rows) > 40
    inside: set[str] = set()
    for position, type, data in rows:
        event = json.loads(data)
        content = json.dumps(event.pop("content", None), ensure_ascii=False)
        facts = json.dumps(event, ensure_ascii=False)
        for name, needle in NEEDLES.items():
            assert needle not in facts, f"{name} stands among the facts of {type} at {position}"
            if needle in content:
                inside.add(name)
        assert "4915112345678" not in facts
    assert inside >= set(NEEDLES) - {"session", "credential", "config"}, "each was really handed in"
    everything = (
        bench.path.read_bytes() + bench.path.with_name("ledger.db-wal").read_bytes()
        if (bench.path.with_name("ledger.db-wal").exists())
        else bench.path.read_bytes()
    )
    for name in ("session", "credential", "config"):
        assert NEEDLES[name].encode() not in everything, f"{name} stands in the file"


def test_views_hold_no_content_either(bench: Bench) -> None:
    """SC-67: what is found by target is found by a pseudonym."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            await gateway.send(message("one"), key=NEEDLES["key"])

    bench.run(main())
    for view in ("intents", "receipts", "workers"):
        shown = json.dumps(bench.query(f"SELECT * FROM {view}"))
        for needle in NEEDLES.values():
            assert needle not in shown
