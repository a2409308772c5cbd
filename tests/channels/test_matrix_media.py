"""Files in Matrix rooms: what is asked and understood, without a homeserver; and against a real one, also where answers
are lost and gateways killed.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from msgledger.adapters.exchange import Answer
from msgledger.adapters.matrix import MatrixChannel
from msgledger.adapters.matrix_media import LIMITS, VOICE
from msgledger.adapters.surface import RenderContext
from msgledger.adapters.text import DUPLICATE_MARKER
from msgledger.ledger.message import Attachment, Message, RenderedUnit, Target
from msgledger.ledger.outcome import Accepted, FailureClass, Proof, Rejected, Unknown

from ..counterparts.proxy import Fate, Passed, Proxy, Rule
from ..counterparts.synapse import Login, Room
from ..crash.gateway_kit import KILLED, Crash, Ledger, Op, Process, Way
from .contract import context, deliver, opened
from .matrix_kit import untagged

pytest_plugins = ("tests.counterparts.fixtures",)
DIGEST = "ab" * 32
HERE = Target.group("matrix", "!ops:example.org")
URI = "mxc://example.org/abc"


def offline() -> MatrixChannel:
    return MatrixChannel("https://example.org", user_id="@bot:example.org", token="t", device_id="BOT")


def file(name: str = "plan.pdf", kind: Any = "file", size: int = 12, **more: Any) -> Attachment:
    return Attachment(name, kind, media_type=more.pop("media_type", "application/pdf"), size=size, digest=DIGEST)


def units(message: Message) -> tuple[RenderedUnit, ...]:
    return offline().render(message, RenderContext(at=1, intent="i")).units


def unit_of(made: Attachment) -> RenderedUnit:
    (unit,) = units(Message(HERE, attachments=(made,)))
    return unit


def answer(status: int, body: Any) -> Answer:
    return Answer(status, {}, json.dumps(body).encode())


def shown(unit: RenderedUnit, **more: Any) -> dict[str, Any]:
    return untagged(json.loads(offline().adapter.build(unit, context(HERE, key="k", **more)).body))


def test_the_upload(tmp_path: Path) -> None:
    """CAP-2: name and type are told, the name encoded; only a new message with a file of ours has one."""
    adapter: Any = offline().adapter
    request = adapter.prepare(unit_of(file("pl än.pdf")), context(HERE, media=tmp_path))
    assert request.target == "/_matrix/media/v3/upload?filename=pl+%C3%A4n.pdf"
    assert request.headers == (("content-type", "application/pdf"),)
    assert (request.file.digest, request.file.length, request.file.path) == (DIGEST, 12, tmp_path)
    untyped = adapter.prepare(unit_of(file(media_type=None)), context(HERE))
    assert untyped.headers == (("content-type", "application/octet-stream"),)
    assert adapter.prepare(RenderedUnit(0, text="x"), context(HERE)) is None


@pytest.mark.parametrize(
    ("kind", "msgtype"),
    [("image", "m.image"), ("video", "m.video"), ("audio", "m.audio"), ("voice", "m.audio"), ("file", "m.file")],
)
def test_the_event_of_each_kind(kind: str, msgtype: str) -> None:
    """CAP-2: with name, size and type; a voice message is marked as such."""
    adapter: Any = offline().adapter
    ready = adapter.prepared(unit_of(file("a.bin", kind)), context(HERE), answer(200, {"content_uri": URI}))
    content = shown(ready)
    assert content.pop(VOICE, None) == ({} if kind == "voice" else None)
    assert content == {
        "msgtype": msgtype,
        "body": "a.bin",
        "filename": "a.bin",
        "info": {"mimetype": "application/pdf", "size": 12},
        "url": URI,
    }


def test_a_copy_of_a_file_has_the_marker_as_its_caption() -> None:
    """UNK-7: and keeps the file's name."""
    (marked,) = offline().render(Message(HERE, attachments=(file(),)), RenderContext(at=1, intent="i")).marked
    content = shown(marked)
    assert (content["body"], content["filename"]) == (DUPLICATE_MARKER.strip(), "plan.pdf")


def test_text_files_and_links() -> None:
    """CAP-2, CAP-3, REL-1: a link is named, as a room shows nothing from elsewhere; the first event is the reply."""
    link = Attachment("b.png", "image", url="https://h/b.png")
    text, media = units(Message.text("see", to=HERE, attachments=(file(), link, Attachment("c.txt"))))
    assert text.text == "see\n\n[image] b.png: https://h/b.png\n[file] c.txt"
    assert (media.kind, media.media) == ("media", file())
    assert "m.relates_to" in shown(text, reply_to="$e") and "m.relates_to" not in shown(media, reply_to="$e")


def test_the_request_does_not_know_its_upload() -> None:
    """R5: what is digested names the file by its digest, whatever address each upload gave."""
    channel = offline()
    first = channel.request_bytes(unit_of(file()), context(HERE, key="k"))
    assert first == channel.request_bytes(unit_of(file()), context(HERE, key="k", attempt=2, media=Path("/x")))
    assert DIGEST.encode() in first
    other = Attachment("plan.pdf", media_type="application/pdf", size=12, digest="cd" * 32)
    assert first != channel.request_bytes(unit_of(other), context(HERE, key="k"))


def test_formatted_text_beside_a_file() -> None:
    """CAP-2, MSG-1: stays formatted; its file is an event of its own."""
    message = Message.text("<b>see</b>", to=HERE, format="html", attachments=(file(),))
    batch = offline().render(message, RenderContext(at=1, intent="i"))
    for (text, media), marker in ((batch.units, ""), (batch.marked, DUPLICATE_MARKER)):
        assert shown(text)["formatted_body"] == f"{marker}<b>see</b>"
        assert (shown(media)["msgtype"], shown(media)["body"]) == ("m.file", marker.strip() or "plan.pdf")


@pytest.mark.parametrize(
    ("status", "body", "failure"),
    [
        (413, {"errcode": "M_TOO_LARGE"}, "invalid_payload"),
        (403, {"errcode": "M_FORBIDDEN"}, "permission"),
        (401, {"errcode": "M_UNKNOWN_TOKEN"}, "auth"),
        (429, {"errcode": "M_LIMIT_EXCEEDED", "retry_after_ms": 2000}, "rate_limit"),
        (413, {}, None),
        (502, {"errcode": "M_UNKNOWN"}, None),
        (200, {}, None),
        (200, {"content_uri": "https://h/x"}, None),
        (200, {"event_id": "$e"}, None),
    ],
)
def test_what_an_upload_comes_to(status: int, body: Any, failure: str | None) -> None:
    """FAIL-2, FAIL-3, FAIL-4, FAIL-5, FAIL-10: a refusal has its class, all else is not understood."""
    adapter: Any = offline().adapter
    outcome = adapter.prepared(unit_of(file()), context(HERE), answer(status, body))
    if failure is None:
        assert isinstance(outcome, Unknown)
    else:
        assert isinstance(outcome, Rejected)
        assert (outcome.failure.value, outcome.code, outcome.status) == (failure, body["errcode"], status)
        assert outcome.retry_after_s == (2.0 if status == 429 else None)


def test_how_much_a_homeserver_takes() -> None:
    """CAP-6: what it says of itself, and nothing that is no number."""
    adapter: Any = offline().adapter
    for said in (answer(404, {"errcode": "M_UNRECOGNIZED"}), answer(200, {}), answer(200, {"m.upload.size": "many"})):
        assert not adapter.learn_limit(said)
        assert adapter.capabilities.media_max_bytes is None
    assert adapter.learn_limit(answer(200, {"m.upload.size": 1000}))
    assert adapter.capabilities.media_max_bytes == 1000
    assert [request.method for request in adapter.limits] == ["GET", "GET"]


# ---- against a homeserver


def call(room: Room, path: str) -> tuple[int, bytes]:
    """A read past the channel and the proxy."""
    connection = http.client.HTTPConnection(urlsplit(room.server.url).netloc, timeout=20)
    try:
        connection.request("GET", path, headers={"authorization": f"Bearer {room.bot.token}"})
        found = connection.getresponse()
        return found.status, found.read()
    finally:
        connection.close()


def downloaded(room: Room, uri: str) -> bytes:
    server, _, name = uri.removeprefix("mxc://").partition("/")
    status, content = call(room, f"/_matrix/client/v1/media/download/{quote(server)}/{quote(name)}")
    assert status == 200, content
    return content


def channel_of(login: Login, url: str) -> MatrixChannel:
    return MatrixChannel(url, user_id=login.user_id, token=login.token)


def place(room: Room) -> Target:
    return Target.group("matrix", room.id)


def one(size: int, path: Path) -> RenderedUnit:
    media = Attachment(path.name, "image", media_type="image/png", size=size, digest=DIGEST)
    return RenderedUnit(0, "media", media=media)


@pytest.mark.synapse
def test_a_file_in_a_room(room: Room, tmp_path: Path) -> None:
    """CAP-2, SC-42: uploaded byte for byte, shown with name, type and size; the receipt is the event's."""
    path = tmp_path / "plöt 1.png"
    path.write_bytes(os.urandom(300_000))
    told = context(place(room), media=path)
    outcome = opened(channel_of(room.bot, room.server.url), lambda it: deliver(it, one(300_000, path), told))
    assert isinstance(outcome, Accepted), outcome
    (event,) = room.messages()
    content = event["content"]
    assert event["event_id"] == outcome.platform_id
    assert (content["msgtype"], content["filename"]) == ("m.image", "plöt 1.png")
    assert content["info"] == {"mimetype": "image/png", "size": 300_000}
    assert downloaded(room, content["url"]) == path.read_bytes()


@pytest.mark.synapse
def test_a_limit_that_is_heard_of_and_one_that_is_met(room: Room, tmp_path: Path) -> None:
    """CAP-6, FAIL-3: the homeserver's own number; a file beyond it is never taken and shows nothing."""
    channel = channel_of(room.bot, room.server.url)

    async def limit(it: Any) -> int | None:
        return it.capabilities.media_max_bytes

    largest = opened(channel, limit)
    _, said = call(room, LIMITS[0].path)
    assert largest == json.loads(said)["m.upload.size"] == 50 * 1_048_576
    path = tmp_path / "big.png"
    with path.open("wb") as big:
        big.truncate(largest + 1)
    outcome = opened(channel, lambda it: deliver(it, one(largest + 1, path), context(place(room), media=path)))
    assert isinstance(outcome, Rejected)
    refused = (FailureClass.INVALID_PAYLOAD, "M_TOO_LARGE")
    cut_off = (FailureClass.TRANSIENT, "prepare_reset")
    assert (outcome.failure, outcome.code) in (refused, cut_off), "it may hang up before all of it has left"
    assert room.messages() == []


@pytest.mark.synapse
def test_a_token_that_is_not_known(room: Room, tmp_path: Path) -> None:
    """FAIL-4: of the upload too; the message is not asked for."""
    path = tmp_path / "a.png"
    path.write_bytes(b"x")
    login = Login(room.bot.user_id, room.bot.device_id, "nobodys")
    told = context(place(room), media=path)
    outcome = opened(channel_of(login, room.server.url), lambda it: deliver(it, one(1, path), told))
    assert isinstance(outcome, Rejected)
    assert (outcome.failure, outcome.code, outcome.status) == (FailureClass.AUTH, "M_UNKNOWN_TOKEN", 401)


@pytest.mark.synapse
@pytest.mark.parametrize("fate", [Fate.LOSE_REQUEST, Fate.LOSE_ANSWER])
def test_an_upload_whose_answer_is_lost(room: Room, proxy: Proxy, tmp_path: Path, fate: Fate) -> None:
    """FAIL-1, R5: nothing is visible, it is uploaded again, and one event shows it."""
    path = tmp_path / "a.png"
    path.write_bytes(b"content")
    channel = channel_of(room.bot, proxy.url)
    proxy.set(Rule(fate, method="POST", path="/upload"))
    told = context(place(room), media=path, key="k1")
    lost = opened(channel, lambda it: deliver(it, one(7, path), told))
    assert isinstance(lost, Rejected)
    assert (lost.code, lost.proof) == ("prepare_reset", Proof.NEVER_DISPATCHED)
    assert room.messages() == []
    assert isinstance(opened(channel, lambda it: deliver(it, one(7, path), told)), Accepted)
    (event,) = room.messages()
    assert downloaded(room, event["content"]["url"]) == b"content"


def way(room: Room, proxy: Proxy) -> Way:
    login = room.bot
    return Way(kind="matrix", at=proxy.url, user=login.user_id, token=login.token, deadline_s=3.0, settle_s=0.5)


def asked(proxy: Proxy, method: str, path: str) -> list[Passed]:
    return [one for one in proxy.passed if one.method == method and path in one.path]


@pytest.mark.synapse
@pytest.mark.parametrize("killed", ["as the upload's answer is held", "between upload and event", "before the receipt"])
def test_a_gateway_killed_around_the_upload(room: Room, proxy: Proxy, tmp_path: Path, killed: str) -> None:
    """SC-40, SC-43, REC-4, REC-6, G3, G4, SND-4: its source has gone; the next process uploads it again, and one event
    shows what was recorded."""
    source = tmp_path / "source"
    source.write_bytes(os.urandom(100_000))
    digest = sha256(source.read_bytes()).hexdigest()
    ledger = Ledger(tmp_path / "l", way(room, proxy))
    op = Op(key="k", place=room.id, text="see", files=[str(source)])
    with Process() as process:
        match killed:
            case "as the upload's answer is held":
                proxy.set(Rule(hold_s=1.0, method="POST", path="/upload"))
                process.start(ledger.life(op))
                proxy.wait(lambda _: any(one.status == 200 for one in asked(proxy, "POST", "/upload")))
                process.send(signal.SIGKILL)
                assert process.wait() == KILLED
            case "between upload and event":
                assert process.run(ledger.life(op, crash=Crash(point="after-prepare"))) == KILLED
            case _:
                assert process.run(ledger.life(op, crash=Crash(point="after-deliver", hits=2))) == KILLED
        ledger.look()
        source.unlink()
        proxy.set()
        assert process.run(ledger.life()) == 0
    text, media = room.messages()
    assert text["content"]["body"] == "see"
    assert sha256(downloaded(room, media["content"]["url"])).hexdigest() == digest
    (row,) = ledger.end().values()
    (committed,) = ledger.events("IntentCommitted")
    assert (row["status"], committed[1]["platform_ids"]) == ("sent", [text["event_id"], media["event_id"]])
    assert len(asked(proxy, "POST", "/upload")) >= (1 if killed == "before the receipt" else 2)
    assert ledger.needs() == 0
