"""Files across processes that are killed: two gateways with one content, uploads that go wrong, and the plan without
files, sent whole.
"""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

import pytest

from .gateway_kit import KILLED, Crash, Ledger, Op, Process, QaPlatform, Way, qa_truth, until

CONTENT = os.urandom(300_000)
SHA256 = sha256(CONTENT).hexdigest()
REFUSED = {"do": "reject", "class": "invalid_payload", "code": "media_unsupported"}


def ledger_of(folder: Path, platform: QaPlatform) -> Ledger:
    return Ledger(folder, Way(kind="qa", at=platform.url, deadline_s=1.0))


def source(folder: Path, name: str = "source") -> str:
    path = folder / name
    path.write_bytes(CONTENT)
    return str(path)


def kept(ledger: Ledger) -> list[Path]:
    folder = ledger.folder / "ledger.db.d" / "media"
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_two_processes_with_one_content(tmp_path: Path) -> None:
    """SC-40, G5: each records and ends messages with it, and neither takes the file from the other."""
    count = 25
    with QaPlatform.start(tmp_path) as platform, Process() as one, Process() as other:
        ledger = ledger_of(tmp_path, platform)
        file = source(tmp_path)
        for process, who in ((one, "one"), (other, "other")):
            ops = [Op(key=f"{who}-{n}", place=f"{who}-{n % 5}", text=f"{who}-{n}", files=[file]) for n in range(count)]
            process.start(ledger.life(*ops, said=str(tmp_path / who)))
        assert (one.wait(), other.wait()) == (0, 0), [(tmp_path / f"{who}.log").read_text() for who in ("one", "other")]
        rows = ledger.end()
        assert {row["status"] for row in rows.values()} == {"sent"}
        shown = [line["media"]["sha256"] for line in qa_truth(platform).sends() if line["media"]]
        assert shown == [SHA256] * (2 * count)
    assert ledger.needs() == 0
    assert kept(ledger) == []


def test_the_end_of_one_message_leaves_the_file_to_another_process(tmp_path: Path) -> None:
    """SC-40, SC-43: it is owed since a process that was killed, and its source has gone; then it goes too."""
    with QaPlatform.start(tmp_path) as platform, Process() as process:
        owed = Op(key="owed", place="a", text="owed", files=[source(tmp_path)])
        ledger = ledger_of(tmp_path, platform)
        assert process.run(ledger.life(owed, crash=Crash(point="before-deliver"))) == KILLED
        os.unlink(owed.files[0])
        sent = Op(key="sent", place="b", text="sent", files=[source(tmp_path, "other")])
        assert process.run(ledger.life(sent, settles=False)) == 0
        shown = [line["media"]["sha256"] for line in qa_truth(platform).sends() if line["media"]]
        assert shown == [SHA256] * 2
        ledger.end()
    assert kept(ledger) == []


@pytest.mark.parametrize("goes_wrong", ["accept_drop", {"do": "server_error"}, {"do": "accept_hang", "after_s": 20}])
def test_an_upload_that_went_wrong_is_done_again_by_the_next_process(tmp_path: Path, goes_wrong: object) -> None:
    """SC-43, SC-40: its answer was lost, it failed, or its gateway was killed while it waited; one message comes of
    it."""
    with QaPlatform.start(tmp_path) as platform, Process() as process:
        platform.script(goes_wrong, method="UPLOAD")  # type: ignore[arg-type]
        ledger = ledger_of(tmp_path, platform)
        op = Op(key="k", place="p", text="text", files=[source(tmp_path)])
        if isinstance(goes_wrong, dict) and goes_wrong["do"] == "accept_hang":
            process.start(ledger.life(op))
            until(platform.uploads, "the upload")
            process.kill()
        else:
            assert process.run(ledger.life(op, crash=Crash(point="after-fact", hits=2))) == KILLED
        os.unlink(op.files[0])
        assert process.run(ledger.life()) == 0
        assert qa_truth(platform).texts() == ["text", "k.0.bin"]
        assert qa_truth(platform).sends()[1]["media"]["sha256"] == SHA256
        assert len(platform.uploads()) == (1 if goes_wrong == {"do": "server_error"} else 2)
        ledger.end()


def test_a_plan_without_files_is_sent_whole(tmp_path: Path) -> None:
    """BAT-5, BAT-6, SC-42: three refused files become three messages that name them, one durable plan, of which nothing
    is lost or doubled wherever the process is killed."""
    with QaPlatform.start(tmp_path) as platform, Process() as process:
        for hits in (1, 2, 3, 4):
            for point in ("before-deliver", "after-fact"):
                platform.clear_script()
                platform.script(REFUSED, method="UPLOAD", times=-1)
                ledger = ledger_of(tmp_path / f"{point}-{hits}", platform)
                op = Op(key=f"{point}-{hits}", place=ledger.folder.name, text="", files=[source(tmp_path)] * 3)
                assert process.run(ledger.life(op, crash=Crash(point=point, hits=hits))) == KILLED
                assert process.run(ledger.life()) == 0
                names = [f"[file] {name}" for name in op.names]
                assert [line["text"] for line in qa_truth(platform).sends(op.place)] == names
                (row,) = ledger.end().values()
                assert (row["status"], row["units"], row["accepted"]) == ("sent", 3, 3)
                assert ledger.topics(row["id"]).count("BatchPlanned") == 1
                (committed,) = ledger.events("IntentCommitted")
                assert len(committed[1]["platform_ids"]) == 3
                assert ledger.needs() == 0
