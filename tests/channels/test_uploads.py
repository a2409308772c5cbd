"""Files on the wire: streamed as they are, uploaded before their message, and named where the platform takes none."""

from __future__ import annotations

import asyncio
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgledger.adapters.driver import Driver
from msgledger.adapters.exchange import Answer, Fault, File, Request
from msgledger.adapters.http import HttpChannel
from msgledger.adapters.qa import QaAdapter, qa_channel
from msgledger.adapters.qa_platform import QaPlatform
from msgledger.adapters.surface import FallsBack, RenderContext
from msgledger.adapters.text import DUPLICATE_MARKER
from msgledger.ledger.errors import InvalidConfig
from msgledger.ledger.message import Attachment, Message, RenderedUnit, Target
from msgledger.ledger.outcome import FailureClass, Outcome, Proof, Rejected

from .conftest import TOKEN
from .contract import accepted, context, deliver, identity, opened, rendered, unique
from .test_driver import OK, Listener

DIGEST = "ab" * 32


def posted(file: File, *answers: bytes, **more: Any) -> tuple[list[bytes], Answer | Fault]:
    """One request with a file, and what a server of raw bytes saw of it."""

    async def run() -> tuple[list[bytes], Answer | Fault]:
        async with Listener(*answers) as listener:
            driver = Driver(listener.url)
            try:
                request = Request("POST", "/up", headers=(("content-type", "image/png"),), file=file)
                answer = await driver.send(request, {"authorization": "Bearer t"}, **{"deadline_s": 5.0, **more})
                return listener.requests, answer
            finally:
                await driver.close()

    return asyncio.run(run())


@pytest.fixture
def content(tmp_path: Path) -> Path:
    path = tmp_path / "content"
    path.write_bytes(os.urandom(700_001))
    return path


def test_a_file_is_streamed_with_its_length(content: Path) -> None:
    """ADP-1: byte for byte, in no chunked form that some platforms refuse."""
    (request,), answer = posted(File(DIGEST, 700_001, content), OK)
    assert isinstance(answer, Answer)
    head, _, body = request.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    assert b"content-length: 700001" in lines
    assert b"content-type: image/png" in lines
    assert not any(line.startswith(b"transfer-encoding") for line in lines)
    assert body == content.read_bytes()


def test_only_so_many_bytes_as_were_announced(content: Path) -> None:
    """ADP-1: a file that grew meanwhile is cut there, one that shrank fails the request."""
    (request,), answer = posted(File(DIGEST, 1000, content), OK)
    assert isinstance(answer, Answer)
    assert request.endswith(content.read_bytes()[:1000])
    requests, answer = posted(File(DIGEST, 800_000, content), OK)
    assert isinstance(answer, Fault) and answer.phase == "dispatched"
    assert requests == []


@pytest.mark.parametrize("path", [None, "nowhere"])
def test_a_file_that_cannot_be_opened_sends_nothing(tmp_path: Path, path: str | None) -> None:
    """FAIL-1: nothing has left then, and it says so."""
    requests, answer = posted(File(DIGEST, 10, None if path is None else tmp_path / path), OK)
    assert isinstance(answer, Fault) and answer.phase == "not_dispatched"
    assert requests == []


def test_the_digest_of_a_request_covers_the_file_and_not_its_place(content: Path) -> None:
    """R5: the same file elsewhere is the same request; another file, or another length, is another."""
    first = Request("POST", "/up", file=File(DIGEST, 10, content)).to_bytes()
    assert first == Request("POST", "/up", file=File(DIGEST, 10)).to_bytes()
    assert first != Request("POST", "/up", file=File("cd" * 32, 10)).to_bytes()
    assert first != Request("POST", "/up", file=File(DIGEST, 11)).to_bytes()
    assert content.read_bytes() not in first


class Uploads:
    """A place on the platform, and one file."""

    def __init__(self, platform: QaPlatform, content: Path, **overrides: Any) -> None:
        self.platform, self.content = platform, content
        self.target = Target.group("qa", unique("place"))
        self.channel = qa_channel(platform.url, token=TOKEN, **overrides)
        file = Attachment("plot.png", "image", media_type="image/png", size=content.stat().st_size, digest=DIGEST)
        (self.unit,) = rendered(self.channel, Message(self.target, attachments=(file,)))

    def send(self, times: int = 1, **more: Any) -> list[Outcome]:
        key = unique("key")

        async def steps(channel: Any) -> list[Outcome]:
            told = context(self.target, key=key, media=self.content, **more)
            return [await deliver(channel, self.unit, told) for _ in range(times)]

        return opened(self.channel, steps)

    def visible(self) -> list[dict[str, Any]]:
        return [line for line in self.platform.accepted() if line["place"] == self.target.id]


@pytest.fixture
def uploads(qa: QaPlatform, content: Path) -> Uploads:
    return Uploads(qa, content)


def test_a_file_is_shown_by_its_message(uploads: Uploads, content: Path) -> None:
    """CAP-2, SC-42: people see name, kind and content; the receipt is that of the message, not of the upload."""
    (outcome,) = uploads.send()
    (line,) = uploads.visible()
    assert line["media"] == {
        "name": "plot.png",
        "url": None,
        "kind": "image",
        "type": "image/png",
        "sha256": sha256(content.read_bytes()).hexdigest(),
        "size": 700_001,
    }
    assert identity(accepted(outcome)) == str(line["id"])


def test_another_upload_is_the_same_request(uploads: Uploads) -> None:
    """R5: each attempt uploads anew under another id; by digest and key it is one message."""
    before = len(uploads.platform.uploads())
    first, second = (accepted(outcome) for outcome in uploads.send(times=2))
    ids = [line["id"] for line in uploads.platform.uploads()[before:]]
    assert len(ids) == len(set(ids)) == 2
    assert (second.duplicate, identity(second)) == (True, identity(first))
    assert len(uploads.visible()) == 1
    channel = uploads.channel
    asked = [context(uploads.target, key="k", attempt=number, media=at) for number, at in ((1, None), (2, "/x"))]
    assert len({channel.request_bytes(uploads.unit, one) for one in asked}) == 1
    other = msgspec.structs.replace(uploads.unit.media, digest="cd" * 32)
    changed = msgspec.structs.replace(uploads.unit, media=other)
    assert channel.request_bytes(changed, asked[0]) != channel.request_bytes(uploads.unit, asked[0])


@pytest.mark.parametrize(
    ("action", "code"),
    [
        ({"do": "server_error"}, "prepare_server_error"),
        ("accept_drop", "prepare_reset"),
        ("drop", "prepare_reset"),
        ("accept_truncated", "prepare_reset"),
        ("malformed", "prepare_malformed_answer"),
        ({"do": "accept_hang", "after_s": 2.0}, "prepare_timeout"),
        ({"do": "redirect"}, "prepare_malformed_answer"),
    ],
)
def test_an_upload_that_fails_has_shown_nothing(uploads: Uploads, action: Any, code: str) -> None:
    """FAIL-1: whatever became of it, it is tried again, and its message was never dispatched."""
    uploads.platform.script(action, method="UPLOAD")
    (outcome,) = uploads.send(deadline_s=0.6)
    assert isinstance(outcome, Rejected)
    assert (outcome.failure, outcome.code, outcome.proof) == (FailureClass.TRANSIENT, code, Proof.NEVER_DISPATCHED)
    assert outcome.bytes_left
    assert uploads.visible() == []
    accepted(uploads.send()[0])
    assert len(uploads.visible()) == 1


@pytest.mark.parametrize("failure", ["invalid_payload", "auth", "permission", "rate_limit"])
def test_a_refused_upload_has_its_class(uploads: Uploads, failure: str) -> None:
    """FAIL-2, FAIL-3, FAIL-4, FAIL-5: as a refused message has."""
    more = {"retry_after": 7} if failure == "rate_limit" else {}
    uploads.platform.script({"do": "reject", "class": failure, "code": "c", **more}, method="UPLOAD")
    (outcome,) = uploads.send()
    assert isinstance(outcome, Rejected)
    assert (outcome.failure.value, outcome.code) == (failure, "c")
    assert outcome.retry_after_s == (7.0 if more else None)
    assert uploads.visible() == []


def test_a_wrong_token_and_a_forgotten_upload(qa: QaPlatform, uploads: Uploads, content: Path) -> None:
    """FAIL-4: the platform's own checks."""
    uploads.channel = qa_channel(qa.url, token="wrong")
    (outcome,) = uploads.send()
    assert isinstance(outcome, Rejected) and outcome.failure is FailureClass.AUTH
    bare = HttpChannel(Unprepared(qa.url, token=TOKEN))
    uploads.channel = bare
    (outcome,) = uploads.send()
    assert isinstance(outcome, Rejected)
    assert (outcome.failure, outcome.code) == (FailureClass.NOT_FOUND, "no_such_upload")


class Unprepared(QaAdapter):
    """An adapter that leaves its upload out."""

    def prepare(self, unit: RenderedUnit, context: Any) -> Request | None:
        return None


def test_a_marked_copy_of_a_file(uploads: Uploads) -> None:
    """UNK-7: the marker is its caption."""
    batch = uploads.channel.render(
        Message(uploads.target, attachments=(uploads.unit.media,)),  # type: ignore[arg-type]
        RenderContext(at=1, intent="i"),
    )
    uploads.unit = batch.marked[0]
    accepted(uploads.send(marked=True)[0])
    (line,) = uploads.visible()
    assert (line["text"], line["media"]["name"]) == (DUPLICATE_MARKER.strip(), "plot.png")


def test_the_fallback_of_refused_files_is_their_names(uploads: Uploads) -> None:
    """CAP-2: text stays as it is; without a code that is about files there is no other plan."""
    files = tuple(Attachment(name, size=1, digest=DIGEST) for name in ("a.png", "b.pdf"))
    message = Message.text("see", to=uploads.target, attachments=files)
    told = RenderContext(at=1, intent="i")
    assert isinstance(uploads.channel, FallsBack)
    batch = uploads.channel.render(message, told)
    for code in ("media_unsupported", "media_too_large"):
        plan = uploads.channel.fallback(message, batch, FailureClass.INVALID_PAYLOAD, told, code)
        assert plan is not None
        found = [(unit.index, unit.kind, unit.text, unit.media) for unit in plan.units]
        assert found == [(0, "text", "see", None), (1, "text", "[file] a.png", None), (2, "text", "[file] b.pdf", None)]
        assert [unit.text for unit in plan.marked] == [DUPLICATE_MARKER + str(unit.text) for unit in plan.units]
    assert uploads.channel.fallback(message, batch, FailureClass.INVALID_PAYLOAD, told, "media_lost") is None


def test_a_limit_for_files_is_a_number_above_nothing() -> None:
    """CAP-6: as every other bound that is declared."""
    with pytest.raises(InvalidConfig, match="media_max_bytes 0"):
        qa_channel("http://127.0.0.1:1", media_max_bytes=0)


def test_what_the_platform_took_stands_over_its_restart(tmp_path: Path, content: Path) -> None:
    """CORE-2: the record knows its uploads, so that a test may restart the platform between the two steps."""
    with QaPlatform.start(tmp_path, token=TOKEN) as platform:
        uploads = Uploads(platform, content)
        accepted(uploads.send()[0])
        platform.kill()
        platform.restart()
        uploads = Uploads(platform, content)
        accepted(uploads.send()[0])
        assert [line["id"] for line in platform.uploads()] == ["u1", "u2"]
        assert len(uploads.visible()) == 1
