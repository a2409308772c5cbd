"""A file that was handed over with a message is what goes out, whatever became of it since; and then it goes away."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from msgledger import Attachment, InvalidMessage, Rejected, Status
from msgledger.ledger.errors import MediaReleased
from msgledger.ledger.store.custody import Custody, StillThere

from .kit import Bench, text
from .media_kit import Files, with_file
from .platform import lose, reject

OWED = b"the report as it was handed over"


@pytest.fixture
def files(bench: Bench) -> Files:
    return Files(bench)


def delete(path: Path) -> None:
    path.unlink()


def change(path: Path) -> None:
    path.write_bytes(b"another report")


def lock(path: Path) -> None:
    """A folder in its place can be read by nobody, not even by root."""
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("spoil", [delete, change, lock])
def test_what_was_owed_is_sent_as_it_was_recorded(bench: Bench, files: Files, tmp_path: Path, spoil: Any) -> None:
    """SC-40, REC-4, SC-43, G7: the source is gone, other or unreadable by then, and the process was killed between."""
    source = tmp_path / "report.pdf"
    source.write_bytes(OWED)

    async def main() -> None:
        bench.platform.ready = False
        gateway = files.gateway()
        await gateway.start()
        delivery = await gateway.send(with_file(source, "see"), wait=False)
        assert delivery.status is Status.PENDING
        await gateway.kill()
        spoil(source)
        bench.platform.ready = True
        async with files.gateway() as gateway:
            await bench.clock.until(lambda: bench.types(delivery.intent)[-1] == "IntentCommitted", within_s=60)
        assert files.seen == [(0, None, None), (1, "report.pdf", OWED)]

    bench.run(main())
    assert files.kept() == []


def test_content_in_memory_is_kept_in_a_file_and_never_in_the_ledger(bench: Bench, files: Files) -> None:
    """SC-40: nor is the path: what is recorded names the file by its keyed digest."""

    async def main() -> None:
        bench.platform.ready = False
        gateway = files.gateway()
        await gateway.start()
        delivery = await gateway.send(with_file(OWED), wait=False)
        await gateway.kill()
        (there,) = files.kept()
        recorded = bench.last(delivery.intent, "IntentRecorded")
        assert recorded["units"] == [{"kind": "media", "media": there.name, "size": len(OWED)}]
        (file,) = recorded["content"]["message"]["attachments"]
        assert file == {
            "name": "report.pdf",
            "media_type": "application/pdf",
            "size": len(OWED),
            "digest": there.name,
        }
        assert bench.query("SELECT count(*) FROM stored_events WHERE instr(state, ?)", OWED.decode()) == [(0,)]
        bench.platform.ready = True
        async with files.gateway():
            await bench.clock.until(lambda: files.contents, within_s=60)
        assert files.contents == [OWED]

    bench.run(main())


def test_two_intents_share_a_file_until_the_last_of_them_ends(bench: Bench, files: Files, tmp_path: Path) -> None:
    """SC-40: the end of the first does not take it from the second."""
    source = tmp_path / "report.pdf"
    source.write_bytes(OWED)

    async def main() -> None:
        async with files.gateway() as gateway:
            bench.platform.plan(lose())
            second = await gateway.send(with_file(source, place="room-2"), wait=False)
            first = await gateway.send(with_file(source, place="room-1"))
            assert first.status is Status.SENT
            assert [until is None for _, _, until in files.needed()] == [False, True]
            await gateway.dispatcher.attempts.media._run(lambda: None)
        assert len(files.kept()) == 1
        assert (await asyncio.to_thread(bench.types, second.intent))[-1] == "OutcomeUnknown"

    bench.run(main())


def test_a_file_is_removed_when_its_message_has_ended(bench: Bench, files: Files) -> None:
    """SC-43: sent and cancelled ones need it no more; a failed one does, because a person may send it again."""

    async def main() -> None:
        async with files.gateway() as gateway:
            assert (await gateway.send(with_file(b"sent"))).status is Status.SENT
            waiting = await gateway.send(with_file(b"cancelled"), not_before=bench.clock.wall_ms() + 60_000, wait=False)
            assert len(files.kept()) <= 2
            await gateway.cancel(waiting, "not wanted")
            bench.platform.plan(reject("invalid_payload"))
            failed = await gateway.send(with_file(b"failed"))
            assert failed.status is Status.FAILED
        (left,) = files.kept()
        assert left.read_bytes() == b"failed"
        assert [until is None for _, _, until in files.needed()] == [True, True, False]

    bench.run(main())


def test_a_failed_message_is_sent_again_with_its_file(bench: Bench, files: Files) -> None:
    """SC-43: from what was recorded, which names the file by its digest alone."""

    async def main() -> None:
        async with files.gateway() as gateway:
            bench.platform.plan(reject("invalid_payload"))
            failed = await gateway.send(with_file(OWED), key="first")
            recorded = (await gateway.intent(failed.intent)).message
            assert recorded is not None
            again = await gateway.send(recorded, key="again")
            assert again.status is Status.SENT
            assert files.contents[-1] == OWED

    bench.run(main())


def test_a_sweep_removes_what_nothing_needs_and_nothing_else(bench: Bench, files: Files) -> None:
    """SC-40: a process died between the copy and the record; what is young may be on its way into one."""

    async def main() -> None:
        bench.platform.ready = False
        async with files.gateway() as gateway:
            await gateway.send(with_file(b"owed"), wait=False)
            dead = Custody(bench.path, gateway.store.pseudonyms)
            dead.let(dead.take("x", b"left behind", max_bytes=100).digest)
        assert len(files.kept()) == 2
        async with files.gateway():
            pass
        assert len(files.kept()) == 2, "young ones stay"
        files.age()
        async with files.gateway():
            pass
        assert [path.read_bytes() for path in files.kept()] == [b"owed"]

    bench.run(main())


def test_a_copy_that_went_before_the_record_is_made_again(
    bench: Bench, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SC-40: another process let go of an equal one in between; the record is refused, and nothing was promised yet."""
    real = StillThere.check
    asked: list[bool] = []

    def check(guard: StillThere, members: Any, state: Any) -> None:
        if not asked:
            for path in files.kept():
                path.unlink()
        asked.append(True)
        real(guard, members, state)

    monkeypatch.setattr(StillThere, "check", check)

    async def main() -> None:
        async with files.gateway() as gateway:
            delivery = await gateway.send(with_file(OWED, "see"), key="k")
            assert delivery.status is Status.SENT
            assert len(asked) == 2
            assert len(bench.query("SELECT id FROM intents")) == 1
            asked.clear()
            monkeypatch.setattr(StillThere, "check", refuse)
            with pytest.raises(MediaReleased):
                await gateway.send(with_file(OWED, "see"), key="other")

    def refuse(*_: Any) -> None:
        raise MediaReleased("gone each time")

    bench.run(main())
    assert files.contents == [OWED]


def test_a_caller_that_goes_away_holds_nothing(bench: Bench, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """SC-40: the copy that was being made meanwhile is let go of, and swept once it is old; nothing was recorded."""
    real, begun, go_on = Custody.take, threading.Event(), threading.Event()

    def take(custody: Custody, *arguments: Any, **more: Any) -> Any:
        begun.set()
        go_on.wait(10)
        return real(custody, *arguments, **more)

    async def main() -> None:
        async with files.gateway() as gateway:
            monkeypatch.setattr(Custody, "take", take)
            sending = asyncio.create_task(gateway.send(with_file(OWED)))
            await asyncio.to_thread(begun.wait, 10)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            go_on.set()
            custody = gateway.dispatcher.attempts.media.custody
            while not files.kept() or files.kept()[0].suffix:
                await asyncio.sleep(0.005)
            with custody.alone(files.kept()[0].name, 2.0) as alone:
                assert alone
            assert bench.types_of_intents() == []
        files.age()
        async with files.gateway():
            pass

    bench.run(main())
    assert files.kept() == []


def test_the_last_look_comes_after_the_check(bench: Bench, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """R9: checking a large file takes its time; what another worker did meanwhile stops the request."""
    real = Custody.problem

    def slow(custody: Custody, *arguments: Any, **more: Any) -> Any:
        bench.clock._boot += 6_000  # longer than the attempt may take
        return real(custody, *arguments, **more)

    async def main() -> None:
        monkeypatch.setattr(Custody, "problem", slow)
        async with files.gateway() as gateway:
            delivery = await gateway.send(with_file(OWED), timeout_s=0.3)
            failed = bench.last(delivery.intent, "AttemptFailed")
            assert (failed["code"], failed["proof"]) == ("superseded", "never_dispatched")
            assert files.seen == []
            monkeypatch.setattr(Custody, "problem", real)
            await bench.clock.until(lambda: files.contents, within_s=60)
        assert files.contents == [OWED]

    bench.run(main())


@pytest.mark.parametrize("how", ["missing", "cut", "other content"])
def test_a_lost_copy_fails_in_sight_and_sends_nothing_else(bench: Bench, files: Files, how: str) -> None:
    """SC-40, SC-42: never a different content, never a success without it."""

    async def main() -> None:
        bench.platform.ready = False
        async with files.gateway() as gateway:
            delivery = await gateway.send(with_file(OWED, "see"), wait=False)
            (there,) = files.kept()
            if how == "missing":
                there.unlink()
            else:
                there.write_bytes(OWED[:5] if how == "cut" else OWED[::-1])
            bench.platform.ready = True
            delivery = await delivery.wait(60)
            assert (delivery.status, delivery.failure, delivery.reason) == (
                Status.FAILED,
                "invalid_payload",
                "rejected",
            )
            assert delivery.receipt is not None and len(delivery.receipt.parts) == 1, "the text alone"
        failed = bench.last(delivery.intent, "AttemptFailed")
        assert (failed["code"], failed["proof"], failed["unit"]) == ("media_lost", "never_dispatched", 1)
        assert there.name in failed["content"]["detail"]
        assert files.seen == [(0, None, None)]

    bench.run(main())


def test_a_receipt_has_a_part_for_the_file(bench: Bench, files: Files) -> None:
    """SC-42: text, file and voice each have theirs, in order; a refused file makes it no success."""

    async def main() -> None:
        async with files.gateway() as gateway:
            voice = Attachment.of_bytes("note.ogg", b"voice", kind="voice")
            both = (Attachment.of_bytes("a.png", b"image"), voice)
            delivery = await gateway.send(text("see", attachments=both))
            assert delivery.receipt is not None
            parts = [(part.platform_id, part.kind) for part in delivery.receipt.parts]
            assert parts == [("m1", "text"), ("m2", "media"), ("m3", "voice")]

            async def refuse_files(request: Any) -> Any:
                return Rejected("invalid_payload", "no files today") if request.unit.media else "m9"

            bench.platform.rule = refuse_files
            delivery = await gateway.send(text("see", attachments=both[:1]))
            assert delivery.status is Status.FAILED
            assert delivery.receipt is not None and len(delivery.receipt.parts) == 1

    bench.run(main())


def test_an_edit_takes_no_file_and_a_delete_needs_none(bench: Bench, files: Files) -> None:
    """SND-2: of a message with a file the text is changed and every part is deleted."""

    async def main() -> None:
        async with files.gateway() as gateway:
            sent = await gateway.send(with_file(OWED, "see"))
            with pytest.raises(InvalidMessage, match="send the file as a message of its own"):
                await gateway.edit(sent, with_file(OWED, "see"))
            assert (await gateway.edit(sent, text("look"))).status is Status.SENT
            assert (await gateway.delete(sent)).status is Status.SENT
        assert [line[:2] for line in bench.platform.log] == [("edit", "m1"), ("delete", "m1"), ("delete", "m2")]

    bench.run(main())
    assert files.kept() == []


def test_a_marked_copy_has_the_marker_as_its_caption_and_the_same_file(bench: Bench, files: Files) -> None:
    """UNK-7, SC-40: the copy that a policy allows is visibly one, and holds what was recorded."""

    async def main() -> None:
        bench.platform.plan(lose())
        async with files.gateway() as gateway:
            delivery = await gateway.send(with_file(OWED), on_unknown="at_least_once", timeout_s=1)
            await bench.clock.until(lambda: bench.types(delivery.intent)[-1] == "IntentCommitted", within_s=120)
        assert bench.platform.texts == ["", "[possible duplicate]"]
        assert files.contents == [OWED, OWED]

    bench.run(main())
    assert files.kept() == []


def test_the_held_open_transaction_takes_files_too(bench: Bench, files: Files, tmp_path: Path) -> None:
    """SC-40: they are copied on entry."""
    source = tmp_path / "report.pdf"
    source.write_bytes(OWED)

    async def main() -> None:
        async with files.gateway() as gateway, gateway.sending(with_file(source, "see")) as transaction:
            source.unlink()
            assert (await transaction.send()).status is Status.SENT
        assert files.contents == [OWED]

    bench.run(main())
    assert files.kept() == []


def test_a_link_is_passed_on_as_it_is(bench: Bench, files: Files) -> None:
    """CAP-2: nothing is copied, and a digest that its sender claims is no fact of ours."""

    async def main() -> None:
        async with files.gateway() as gateway:
            link = Attachment("a.png", url="https://h/a.png", digest="d" * 64)
            sent = await gateway.send(text("see", attachments=(link,)))
            assert bench.last(sent.intent, "IntentRecorded")["units"] == [{}, {"kind": "media"}]
        assert files.seen == [(0, None, None), (1, "a.png", None)]
        assert not files.folder.exists()

    bench.run(main())


def test_no_row_and_no_file_for_messages_without_files(bench: Bench, files: Files) -> None:
    """G13: they cost nothing of this."""

    async def main() -> None:
        async with files.gateway() as gateway:
            await gateway.send(text("plain"))
        assert files.needed() == []
        assert not files.folder.exists()

    bench.run(main())


def test_the_type_and_kind_are_guessed_from_the_name(tmp_path: Path) -> None:
    """MSG-1: and may be said."""
    found = [
        (file.name, file.kind, file.media_type)
        for file in (
            Attachment.of_file(tmp_path / "a.png"),
            Attachment.of_file("b.mp3", name="song"),
            Attachment.of_bytes("c.mp4", b"x"),
            Attachment.of_bytes("d.unknown-kind", b"x"),
            Attachment.of_bytes("e.ogg", b"x", kind="voice", media_type="audio/ogg"),
        )
    ]
    assert found == [
        ("a.png", "image", "image/png"),
        ("song", "audio", "audio/mpeg"),
        ("c.mp4", "video", "video/mp4"),
        ("d.unknown-kind", "file", None),
        ("e.ogg", "voice", "audio/ogg"),
    ]
