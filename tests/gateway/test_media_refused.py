"""Files that cannot be owed: refused before anything is recorded, read from their source where that is allowed, named
where they cannot go along.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgledger import Attachment, InvalidMessage, Message, Status
from msgledger.ledger.errors import InvalidMedia, StoreFull
from msgledger.ledger.store import custody as custody_module
from msgledger.ledger.store.custody import Custody
from msgledger.lifecycle.plan import Options

from .kit import Bench, text, to
from .media_kit import Files, with_file
from .platform import reject

OWED = b"the report as it was handed over"


@pytest.fixture
def files(bench: Bench) -> Files:
    return Files(bench)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "report.pdf"
    path.write_bytes(OWED)
    return path


def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than a few bytes of a copy are taken."""

    def write(fd: int, piece: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(custody_module.os, "write", write)


CASES: dict[str, tuple[Callable[[Path], Message], str]] = {
    "missing": (lambda at: with_file(at / "gone.pdf", "see"), "gone.pdf is not there"),
    "folder": (lambda at: with_file(at, "see"), "is a folder and no file"),
    "empty": (lambda at: with_file(b"", "see"), "report.pdf is empty"),
    "too big for the channel": (lambda at: with_file(b"x" * 101, "see"), "has 101 bytes, the most is 100"),
    "two sources": (
        lambda at: text("see", attachments=(Attachment("a", path="/etc/hosts", url="https://h/a"),)),
        "has several sources",
    ),
    "a name that is a path": (lambda at: with_file(b"x", "see", name="../a"), "no usable name"),
    "no name": (lambda at: with_file(b"x", "see", name=""), "no usable name"),
    "a name with a line end": (lambda at: with_file(b"x", "see", name="a\r\nb"), "no usable name"),
    "a long name": (lambda at: with_file(b"x", "see", name="ä" * 128), "no usable name"),
    "a media type with a line end": (
        lambda at: text("see", attachments=(Attachment.of_bytes("a", b"x", media_type="a/b\r\nx: y"),)),
        "is no media type",
    ),
    "may not be copied": (lambda at: with_file(at / "report.pdf", "see", may_copy=False), "may not be copied"),
    "a digest of nothing": (
        lambda at: text("see", attachments=(Attachment("a", digest="0" * 64, size=1),)),
        "is not there; bring the file itself",
    ),
    "a digest that is a path": (
        lambda at: text("see", attachments=(Attachment("a", digest="../../x"),)),
        "is no digest of a file",
    ),
    "one good, one missing": (
        lambda at: text("see", attachments=(Attachment.of_bytes("a", b"x"), Attachment.of_file(at / "gone"))),
        "gone is not there",
    ),
    "too many": (lambda at: text("x", attachments=tuple(Attachment.of_bytes("a", b"x") for _ in range(21))), "21"),
    "a text that is too long beside a good one": (lambda at: with_file(b"x", "x" * 300), "shorten it"),
}


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_recorded_sent_or_left_behind(bench: Bench, files: Files, source: Path, case: str) -> None:
    """SC-40, SC-42: refused before anything was promised, with the value and the way out."""
    make, words = CASES[case]

    async def main() -> None:
        async with bench.gateway(files.channel(media_max_bytes=100)) as gateway:
            with pytest.raises(InvalidMessage, match=words):
                await gateway.send(make(source.parent))
            assert bench.types_of_intents() == []
        assert files.seen == []

    bench.run(main())
    assert files.kept() == []


def test_a_full_disk(bench: Bench, files: Files, source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DUR-1, DUR-2: required is refused, and leaves nothing; best effort reads the source when it sends."""

    async def main() -> None:
        async with files.gateway() as gateway:
            with monkeypatch.context() as patch:
                full_disk(patch)
                with pytest.raises(StoreFull, match="no space is left for a copy"):
                    await gateway.send(with_file(source, "see"))
                assert bench.types_of_intents() == []
                assert files.kept() == []
                sent = await gateway.send(with_file(source, "see"), durability="best_effort")
            assert sent.status is Status.SENT
        assert files.contents == [OWED]

    bench.run(main())
    assert files.kept() == []


def gone(source: Path) -> None:
    source.unlink()


def other(source: Path) -> None:
    source.write_bytes(OWED[::-1])


def longer(source: Path) -> None:
    source.write_bytes(OWED + b"!")


@pytest.mark.parametrize("spoil", [None, gone, other, longer])
def test_what_may_not_be_copied_is_read_when_it_is_sent(bench: Bench, files: Files, source: Path, spoil: Any) -> None:
    """SC-40: for best effort, from where it lies; what is not the same any more fails in sight."""

    async def main() -> None:
        bench.platform.ready = False
        async with files.gateway() as gateway:
            message = with_file(source, "", may_copy=False)
            delivery = await gateway.send(message, durability="best_effort", wait=False)
            assert files.kept() == []
            assert files.needed() == [], "no copy is kept, so none can be missing"
            (unit,) = bench.last(delivery.intent, "IntentRecorded")["units"]
            assert (unit["size"], unit["kept"]) == (len(OWED), False)
            if spoil is not None:
                spoil(source)
            bench.platform.ready = True
            delivery = await delivery.wait(60)
            assert delivery.status is (Status.SENT if spoil is None else Status.FAILED)
        assert files.contents == ([OWED] if spoil is None else [])
        if spoil is not None:
            failed = bench.last(delivery.intent, "AttemptFailed")
            found = (failed["failure"], failed["code"], failed["proof"])
            assert found == ("invalid_payload", "media_gone", "never_dispatched")

    bench.run(main())


def test_without_the_ledger_a_file_goes_out_all_the_same(bench: Bench, files: Files, source: Path) -> None:
    """DUR-3: `disabled` copies no file; content in memory needs one to be read from, which a sweep removes."""

    async def main() -> None:
        async with files.gateway() as gateway:
            assert (await gateway.send(with_file(source, ""), durability="disabled")).status is Status.SENT
            assert files.kept() == []
            assert (await gateway.send(with_file(source, "", may_copy=False), durability="disabled")).receipt
            assert (await gateway.send(with_file(b"memory"), durability="disabled")).status is Status.SENT
            with pytest.raises(InvalidMedia, match="is not there"):
                await gateway.send(with_file(source.parent / "gone", ""), durability="disabled")
            assert bench.types_of_intents() == []
        assert files.contents == [OWED, OWED, b"memory"]

    bench.run(main())
    assert files.kept() == []


def test_best_effort_without_the_ledger_sends_the_file(bench: Bench, files: Files, source: Path) -> None:
    """DUR-2: the copy beside the ledger may be made where the ledger itself cannot be written."""

    async def main() -> None:
        async with files.gateway(lock_wait_s=0.1) as gateway:
            await bench.clock.settle()
            with bench.locked():
                sent = await gateway.send(with_file(source, ""), durability="best_effort")
                assert (sent.status, sent.durable) == (Status.SENT, False)
        assert files.contents == [OWED]

    bench.run(main())


def test_a_channel_that_takes_no_files_names_them(bench: Bench, files: Files, source: Path) -> None:
    """CAP-2, SC-42: by name, never by where they lie; a message that is nothing else is refused."""

    async def main() -> None:
        for able in ("none", "remote_url"):
            async with bench.gateway(bench.platform.channel(attachments=able)) as gateway:
                sent = await gateway.send(with_file(source, "see the report"))
                assert sent.status is Status.SENT
                with pytest.raises(InvalidMedia, match="takes no files and the message for it is nothing else"):
                    await gateway.send(with_file(source, ""))
                recorded = bench.last(sent.intent, "IntentRecorded")
                assert str(source) not in str(recorded)
        assert bench.platform.texts == ["see the report\n\n[file] report.pdf"] * 2

    bench.run(main())
    assert files.kept() == []


def test_the_same_key_with_the_same_content_is_the_same_message(bench: Bench, files: Files, source: Path) -> None:
    """OB-3, SC-44, SC-40: wherever the content lies; other content is a conflict; a source that is gone by then is what
    it was."""

    async def main() -> None:
        async with files.gateway() as gateway:
            first = await gateway.send(with_file(source, "see"), key="k")
            copy = source.with_name("copy")
            copy.write_bytes(OWED)
            again = await gateway.send(with_file(copy, "see", name="report.pdf"), key="k")
            assert (again.intent, again.repeated) == (first.intent, True)
            source.write_bytes(b"other")
            with pytest.raises(Exception, match="with other content"):
                await gateway.send(with_file(source, "see"), key="k")
            source.unlink()
            again = await gateway.send(with_file(source, "see"), key="k")
            assert (again.intent, again.repeated) == (first.intent, True)
            with pytest.raises(Exception, match="with other content"):
                await gateway.send(with_file(source, "look"), key="k")
            for message, key in ((with_file(source, "see"), "new"), (with_file(source.with_name("x"), "see"), "k")):
                with pytest.raises(InvalidMedia, match="is not there"):
                    await gateway.send(message, key=key)
        assert files.contents == [OWED]

    bench.run(main())
    assert files.kept() == []


def test_a_run_keeps_its_count_whatever_becomes_of_a_file(bench: Bench, files: Files, source: Path) -> None:
    """SC-46, OB-3: a file that was there in the first run and is gone in the second takes nobody's place."""

    async def main() -> None:
        run = {"producer": "job", "run": "1"}
        async with files.gateway() as gateway:
            await gateway.send(with_file(source, "first"), **run)
            await gateway.send(text("second"), **run)
        source.unlink()
        async with files.gateway() as gateway:
            for message in (with_file(source, "first"), text("second")):
                assert (await gateway.send(message, **run)).repeated
            with pytest.raises(InvalidMedia):
                await gateway.send(with_file(source, "third"), **run)
            assert not (await gateway.send(text("fourth"), **run)).repeated
        assert bench.platform.texts == ["first", "", "second", "fourth"]

    bench.run(main())


def test_what_is_recorded_while_a_copy_is_let_go_of_keeps_it(
    bench: Bench, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SC-40: it was needed by nobody when that was asked first, and is by the time it would go."""
    real = Custody.alone

    async def main() -> None:
        bench.platform.ready = False
        loop = asyncio.get_running_loop()
        async with files.gateway() as gateway:
            media = gateway.dispatcher.attempts.media
            digest = media.custody.take("x", OWED, max_bytes=100).digest
            media.custody.let(digest)

            def alone(custody: Custody, *arguments: Any) -> Any:
                monkeypatch.setattr(Custody, "alone", real)
                asyncio.run_coroutine_threadsafe(gateway.send(with_file(OWED), wait=False), loop).result(10)
                return real(custody, *arguments)

            monkeypatch.setattr(Custody, "alone", alone)
            await asyncio.to_thread(media._release, [digest])
            assert [path.name for path in files.kept()] == [digest]

    bench.run(main())


def test_a_copy_that_cannot_be_read_now_is_owed_still(
    bench: Bench, files: Files, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SC-40, G7: too many open files, or a wrong owner, say nothing of its content: it costs no attempt and is tried
    again."""
    real = os.open

    def exhausted(name: Any, *more: Any, **named: Any) -> int:
        if files.folder in Path(name).parents and len(Path(name).name) == 64:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return real(name, *more, **named)

    async def main() -> None:
        async with files.gateway() as gateway:
            with monkeypatch.context() as patch:
                patch.setattr(custody_module.os, "open", exhausted)
                delivery = await gateway.send(with_file(source, ""), max_attempts=1, timeout_s=0.3)
                await bench.clock.until(lambda: bench.types(delivery.intent).count("AttemptFailed") > 4, within_s=300)
                failed = bench.last(delivery.intent, "AttemptFailed")
                assert (failed["failure"], failed["code"]) == ("transient", "media_unreadable")
                assert failed["proof"] == "never_dispatched"
                assert gateway.dispatcher.gate.line(("plat", "default")).unreached == 0, "the platform is there"
                assert "Too many open files" in failed["content"]["detail"]
                assert files.seen == []
            await bench.clock.until(lambda: files.contents, within_s=120)
            for _ in range(4):
                gone = await gateway.send(
                    with_file(os.urandom(9)), not_before=bench.clock.wall_ms() + 9_000, wait=False
                )
                files.kept()[0].unlink()
                await bench.clock.until(lambda id=gone.intent: bench.types(id)[-1] == "IntentFailed", within_s=60)
            assert gateway.dispatcher.gate.line(("plat", "default")).unreached == 0
        assert files.contents == [OWED]

    bench.run(main())


def test_nothing_that_was_not_copied_is_recorded(bench: Bench, files: Files, source: Path) -> None:
    """SC-40: whichever way a message comes to be planned, no path and no content gets into the ledger."""

    async def main() -> None:
        async with files.gateway() as gateway:
            for message in (with_file(source, "see"), with_file(b"x", "see")):
                with pytest.raises(InvalidMedia, match="no copy was made"):
                    gateway._sender.planner.plan(message, Options())

    bench.run(main())


def test_a_file_by_its_digest_alone(bench: Bench, files: Files) -> None:
    """SC-43: of a failed message: its size is that of the copy, whatever is said of it."""

    async def main() -> None:
        async with files.gateway() as gateway:
            bench.platform.plan(reject("invalid_payload"))
            await gateway.send(with_file(OWED))
            (there,) = files.kept()
            again = text("again", attachments=(Attachment("report.pdf", digest=there.name),))
            sent = await gateway.send(again)
            assert bench.last(sent.intent, "IntentRecorded")["units"][1]["size"] == len(OWED)
        assert files.contents == [OWED, OWED]

    bench.run(main())


def test_a_file_by_its_digest_has_the_bound_of_its_channel(bench: Bench, files: Files) -> None:
    """SC-42: one that another channel took may be too large for this one."""

    async def main() -> None:
        bench.platform.plan(reject("invalid_payload"))
        async with files.gateway() as gateway:
            await gateway.send(with_file(OWED))
            (there,) = files.kept()
        async with bench.gateway(files.channel(media_max_bytes=len(OWED) - 1)) as gateway:
            with pytest.raises(InvalidMedia, match="the most is"):
                await gateway.send(text("again", attachments=(Attachment("report.pdf", digest=there.name),)))
        assert files.contents == [OWED]

    bench.run(main())


def test_a_message_of_a_file_alone_needs_a_channel_that_takes_it(bench: Bench, files: Files) -> None:
    """SC-42: a name without the file would be no message."""

    async def main() -> None:
        async with files.gateway() as gateway:
            sent = await gateway.send(Message(to(), attachments=(Attachment.of_bytes("a.txt", b"x"),)))
            assert sent.receipt is not None and [part.kind for part in sent.receipt.parts] == ["media"]

    bench.run(main())
