"""What happens when Telegram refuses a form: the whole message again in another, as one plan that can be sent again."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import apsw
import msgledger
import pytest
from msgledger import Attachment, Message, Target
from msgledger.adapters.telegram import TelegramChannel
from msgspec.structs import replace

from .telegram_kit import CHAT, TOKEN
from .test_driver import Listener

ME = {"ok": True, "result": {"id": 424242, "is_bot": True, "username": "a_bot"}}
TARGET = Target.direct("telegram", "7001")


def no(description: str) -> dict[str, Any]:
    return {"ok": False, "error_code": 400, "description": f"Bad Request: {description}"}


def yes(id: int) -> dict[str, Any]:
    return {"ok": True, "result": {"message_id": id, "date": 1_700_000_000, "chat": {"id": 7001, "type": "private"}}}


def raw(said: dict[str, Any]) -> bytes:
    body = json.dumps(said).encode()
    status = said.get("error_code", 200)
    return b"HTTP/1.1 %d x\r\nkeep: x\r\ncontent-length: %d\r\n\r\n" % (status, len(body)) + body


def sent(folder: Path, message: Message, *answers: dict[str, Any]) -> tuple[Any, list[tuple[str, dict[str, Any]]]]:
    """What became of a message, and the calls that the platform got."""

    async def run() -> tuple[Any, list[bytes]]:
        async with Listener(*map(raw, (ME, *answers))) as listener:
            channel = TelegramChannel(TOKEN, base_url=listener.url)
            async with msgledger.open(folder / "ledger.db", channels=[channel]) as gateway:
                return await gateway.send(message), listener.requests

    delivery, requests = asyncio.run(run())
    calls: list[tuple[str, dict[str, Any]]] = []
    for request in requests[1:]:
        head, _, body = request.partition(b"\r\n\r\n")
        calls.append((head.split(b" ")[1].decode().rpartition("/")[2], json.loads(body)))
    return delivery, calls


def events(folder: Path, type: str) -> list[dict[str, Any]]:
    connection = apsw.Connection(str(folder / "ledger.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        rows = connection.execute("SELECT data FROM events WHERE type = ? ORDER BY position", (type,)).fetchall()
        return [json.loads(data) for (data,) in rows]
    finally:
        connection.close()


def test_a_silent_message_of_several_parts(tmp_path: Path) -> None:
    """TC-4, TC-5, BAT-5: marks that are refused lead to all parts in plain words, each still silent, and that other
    plan is one record, made before its first part leaves."""
    text = "<b>" + "word " * 1500 + "</b>"
    message = replace(Message.text(text, to=TARGET, format="html"), raw={"telegram": {"disable_notification": True}})
    delivery, calls = sent(tmp_path, message, no("can't parse entities: x"), yes(5), yes(6))
    assert delivery.status == "sent" and delivery.receipt.platform_ids == ("5", "6")
    assert [method for method, _ in calls] == ["sendMessage"] * 3
    assert all(body["disable_notification"] is True for _, body in calls)
    assert "entities" in calls[0][1] and not any("entities" in body for _, body in calls[1:])
    assert " ".join(body["text"] for _, body in calls[1:]).split() == ("word " * 1500).split()
    (plan,) = events(tmp_path, "BatchPlanned")
    assert (len(plan["units"]), plan["why"]) == (2, "invalid_payload")


def test_a_link_that_it_cannot_fetch_is_named(tmp_path: Path) -> None:
    """CAP-2: the caption stays, and the link stands in the text."""
    file = Attachment("a.jpg", "image", url="https://files.example/a.jpg")
    message = Message.text("look", to=TARGET, attachments=(file,))
    delivery, calls = sent(tmp_path, message, no("failed to get HTTP URL content"), yes(5))
    assert delivery.status == "sent"
    assert [method for method, _ in calls] == ["sendPhoto", "sendMessage"]
    assert calls[1][1]["text"] == "look\n\n[image] a.jpg: https://files.example/a.jpg"


def test_an_image_that_is_no_photo_goes_as_a_file(tmp_path: Path) -> None:
    """CAP-2: with its caption."""
    file = Attachment("a.jpg", "image", url="https://files.example/a.jpg")
    message = Message.text("look", to=TARGET, attachments=(file,))
    delivery, calls = sent(tmp_path, message, no("PHOTO_INVALID_DIMENSIONS"), yes(5))
    assert delivery.status == "sent"
    assert [(method, body["caption"]) for method, body in calls] == [("sendPhoto", "look"), ("sendDocument", "look")]


def test_a_caption_is_edited_as_one(tmp_path: Path) -> None:
    """CH-1: where the message that is edited has a file, the new text becomes its caption."""

    async def run() -> tuple[Any, list[bytes]]:
        answers = (ME, yes(5), no("there is no text in the message to edit"), yes(5))
        async with Listener(*map(raw, answers)) as listener:
            channel = TelegramChannel(TOKEN, base_url=listener.url)
            async with msgledger.open(tmp_path / "ledger.db", channels=[channel]) as gateway:
                file = Attachment("a.jpg", "image", url="https://files.example/a.jpg")
                first = await gateway.send(Message.text("before", to=TARGET, attachments=(file,)))
                return await gateway.edit(first, Message.text("after", to=TARGET)), listener.requests

    delivery, requests = asyncio.run(run())
    assert delivery.status == "sent"
    assert requests[-1].split(b" ")[1].endswith(b"/editMessageCaption")
    assert json.loads(requests[-1].partition(b"\r\n\r\n")[2])["caption"] == "after"


@pytest.mark.parametrize("why", ["message is too long", "chat not found", "something of next year"])
def test_what_has_no_other_form_fails(tmp_path: Path, why: str) -> None:
    """FAIL-3: nothing is visible, and it is over."""
    delivery, calls = sent(tmp_path, Message.text("<b>x</b>", to=CHAT, format="html"), no(why))
    assert (delivery.status, len(calls)) == ("failed", 1)


def test_a_form_is_refused_once(tmp_path: Path) -> None:
    """FAIL-3: the other plan is tried once."""
    refused = no("can't parse entities: x")
    delivery, calls = sent(tmp_path, Message.text("<b>x</b>", to=CHAT, format="html"), refused, refused)
    assert (delivery.status, len(calls)) == ("failed", 2)
