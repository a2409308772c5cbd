"""Copies of files beside the ledger: taken whole or not at all, found again by their content, removed when they may."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgledger.ledger.errors import InvalidMedia, MediaReleased, StoreBroken, StoreFull, StoreLocked, StoreReadOnly
from msgledger.ledger.fold import Member
from msgledger.ledger.pseudonym import Pseudonyms
from msgledger.ledger.store import custody as module
from msgledger.ledger.store.custody import Custody, StillThere
from msgledger.ledger.store.filesystem import sync_folder
from msgledger.ledger.store.owner import Owner

MIB = 1_048_576
SECRET = Pseudonyms(b"s" * 32)
FAR = time.time() + 1_000_000.0


@pytest.fixture
def custody(tmp_path: Path) -> Custody:
    return Custody(tmp_path / "l.db", SECRET)


def files(custody: Custody) -> list[Path]:
    """Everything below the folder that is a file."""
    return sorted(path for path in custody.folder.rglob("*") if path.is_file()) if custody.folder.exists() else []


def source(tmp_path: Path, content: bytes = b"what is owed", name: str = "report.pdf") -> str:
    path = tmp_path / name
    path.write_bytes(content)
    return str(path)


def test_a_copy_stands_under_its_keyed_digest_for_its_owner_alone(custody: Custody, tmp_path: Path) -> None:
    """SC-40: modes 0600 and 0700; the digest is keyed, because that of a known file can be guessed."""
    content = os.urandom(2 * MIB + 17)
    copy = custody.take("report.pdf", source(tmp_path, content), max_bytes=3 * MIB)
    assert copy.size == len(content)
    (there,) = files(custody)
    assert there == custody.path(copy.digest) == custody.folder / copy.digest[:2] / copy.digest
    assert there.read_bytes() == content
    assert stat.S_IMODE(there.stat().st_mode) == 0o600
    folders = [there.parent, custody.folder, custody.folder.parent]
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o700}
    other = Custody(tmp_path / "other.db", Pseudonyms(b"t" * 32))
    assert other.take("x", content, max_bytes=3 * MIB).digest != copy.digest


def test_equal_content_is_stored_once_whatever_it_came_from(custody: Custody, tmp_path: Path) -> None:
    """SC-40: a path, another path, or bytes: one file; and the digest does not depend on how it is read."""
    content = os.urandom(MIB + 1)
    found = {
        custody.take("a", source(tmp_path, content, "a"), max_bytes=2 * MIB),
        custody.take("b", source(tmp_path, content, "b"), max_bytes=2 * MIB),
        custody.take("c", content, max_bytes=2 * MIB),
        custody.witness("a", str(tmp_path / "a"), max_bytes=2 * MIB),
    }
    assert len(found) == 1
    assert len(files(custody)) == 1


def test_taking_again_mends_a_damaged_copy(custody: Custody, tmp_path: Path) -> None:
    """SC-40: the new copy takes the place of the old one."""
    copy = custody.take("a", b"content", max_bytes=MIB)
    custody.path(copy.digest).write_bytes(b"c0ntent")
    assert custody.problem(copy.digest, copy.size) is not None
    custody.take("a", b"content", max_bytes=MIB)
    assert custody.problem(copy.digest, copy.size) is None


def folder(tmp_path: Path) -> str:
    (tmp_path / "folder").mkdir()
    return str(tmp_path / "folder")


def pipe(tmp_path: Path) -> str:
    os.mkfifo(tmp_path / "pipe")
    return str(tmp_path / "pipe")


REFUSED: dict[str, tuple[Callable[[Path], str | bytes], str]] = {
    "missing": (lambda at: str(at / "nothing.pdf"), "nothing.pdf is not there: check the path"),
    "below a file": (lambda at: source(at) + "/x", "cannot be opened"),
    "folder": (folder, "is a folder and no file: attach a file"),
    "pipe": (pipe, "is a pipe and no file"),
    "device": (lambda at: "/dev/zero", "/dev/zero is a device and no file"),
    "NUL in the path": (lambda at: "a\x00b", "cannot be opened"),
    "empty": (lambda at: source(at, b""), "report.pdf is empty: attach it once it is written"),
    "no bytes": (lambda at: b"", "name is empty"),
    "too big": (lambda at: source(at, b"x" * 1001), "has 1001 bytes, the most is 1000: send a smaller file"),
    "too many bytes": (lambda at: b"x" * 1001, "name has 1001 bytes, the most is 1000"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_taken_is_refused_and_leaves_nothing(custody: Custody, tmp_path: Path, case: str) -> None:
    """SC-40: with the path and the way out; no copy, no draft."""
    make, words = REFUSED[case]
    with pytest.raises(InvalidMedia, match=words):
        custody.take("name", make(tmp_path), max_bytes=1000)
    assert files(custody) == []


def test_a_file_that_may_not_be_read(custody: Custody, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SC-40: these tests may run as a user who may read everything, so the system's refusal is played."""
    path = source(tmp_path)
    real = os.open

    def denied(name: Any, *more: Any) -> int:
        if name == path:
            raise PermissionError(errno.EACCES, "Permission denied", name)
        return real(name, *more)

    monkeypatch.setattr(module.os, "open", denied)
    with pytest.raises(InvalidMedia, match="may not be read by this process: check its owner and mode"):
        custody.take("name", path, max_bytes=1000)
    assert files(custody) == []


@pytest.mark.parametrize("change", ["grows", "shrinks", "is written over"])
def test_a_file_that_changes_while_it_is_read(
    custody: Custody, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """SC-40: half of one state and half of another is nobody's file."""
    path = Path(source(tmp_path, b"x" * (2 * MIB)))
    real = os.read
    read: list[int] = []

    def reading(fd: int, size: int) -> bytes:
        piece = real(fd, size)
        read.append(len(piece))
        if len(read) == 1:
            match change:
                case "grows":
                    with path.open("ab") as file:
                        file.write(b"more")
                case "shrinks":
                    os.truncate(path, MIB + 5)
                case _:
                    with path.open("r+b") as file:
                        file.write(b"y")
                    os.utime(path, ns=(1, 1))
        return piece

    monkeypatch.setattr(module.os, "read", reading)
    with pytest.raises(InvalidMedia, match="changed while it was read"):
        custody.take("name", str(path), max_bytes=4 * MIB)
    assert files(custody) == []


@pytest.mark.parametrize(
    ("code", "typed", "words"),
    [
        (errno.ENOSPC, StoreFull, "no space is left for a copy"),
        (errno.EROFS, StoreReadOnly, "may not be written"),
        (errno.EIO, StoreBroken, "cannot be written"),
    ],
)
@pytest.mark.parametrize("call", ["write", "fsync", "rename"])
def test_a_disk_that_does_not_take_the_copy(
    custody: Custody, monkeypatch: pytest.MonkeyPatch, code: int, typed: type, words: str, call: str
) -> None:
    """SC-40: a typed error, and nothing is left behind."""

    def broken(*_: Any) -> Any:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(module.os, call, broken)
    with pytest.raises(typed, match=words):
        custody.take("name", b"content", max_bytes=1000)
    monkeypatch.undo()
    assert files(custody) == []


def test_what_is_wrong_with_a_copy_is_said(custody: Custody) -> None:
    """SC-40: missing, of another size, of other content; a look that is not deep only measures."""
    copy = custody.take("a", b"content", max_bytes=1000)
    place = custody.path(copy.digest)
    assert custody.problem(copy.digest, copy.size) is None
    place.write_bytes(b"c0ntent")
    assert "other content" in str(custody.problem(copy.digest, copy.size))
    assert custody.problem(copy.digest, copy.size, deep=False) is None
    place.write_bytes(b"cut")
    assert "3 bytes and was made with 7" in str(custody.problem(copy.digest, copy.size, deep=False))
    place.unlink()
    assert "is not there" in str(custody.problem(copy.digest, copy.size))
    with pytest.raises(InvalidMedia, match="no digest"):
        custody.path("../../etc/passwd")


def test_what_dead_processes_left_is_swept(custody: Custody) -> None:
    """SC-40: a half-made copy goes once it is old and its maker gone; one that is still made stays, copies stay."""
    copy = custody.take("a", b"content", max_bytes=1000)
    dead, alive = custody.folder / ("1" * 32 + ".tmp"), custody.folder / ("2" * 32 + ".tmp")
    for draft in (dead, alive):
        draft.write_bytes(b"half")
    with alive.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert custody.sweep_drafts(time.time() - 60) == 0
        assert custody.sweep_drafts(FAR) == 1
    assert files(custody) == sorted([alive, custody.path(copy.digest)])
    assert custody.sweep_drafts(FAR) == 1


def test_copies_are_listed_in_order_and_from_where_one_was(custody: Custody) -> None:
    """SC-40: what a bounded sweep goes over."""
    made = sorted(custody.take("a", bytes([n + 1]), max_bytes=10).digest for n in range(20))
    (custody.folder / "zz").mkdir()
    (custody.folder / "zz" / "note.txt").write_text("not ours")
    assert [digest for digest, *_ in custody.listed(FAR)] == made
    assert [digest for digest, *_ in custody.listed(FAR, made[7])] == made[8:]
    assert list(custody.listed(time.time() - 60)) == []


def test_a_record_is_refused_where_its_copy_has_gone(custody: Custody) -> None:
    """SC-40: asked inside the transaction that records; the other guard is asked first."""
    copy = custody.take("a", b"content", max_bytes=1000)
    asked: list[str] = []

    class Other:
        partition = "p"

        def members(self, *_: Any) -> dict[str, Member]:
            return {"stream": Member(7)}

        def check(self, members: Any, *_: Any) -> None:
            asked.extend(members)

    guard, cursor = StillThere(custody, [copy.digest], Other()), None
    guard.check(guard.members(cursor, 1), None)  # type: ignore[arg-type]
    assert (guard.partition, asked) == ("p", ["stream"])
    assert StillThere(custody, [], None).members(cursor, 1) == {}  # type: ignore[arg-type]
    aside = custody.set_aside(copy.digest)
    assert aside is not None
    with pytest.raises(MediaReleased):
        guard.check({}, None)
    assert custody.set_aside(copy.digest) is None
    assert files(custody) == [aside]


def test_who_holds_a_copy_keeps_others_from_removing_it(custody: Custody, tmp_path: Path) -> None:
    """SC-40: in this process and in others, as often as it was held; what nobody holds may go."""
    copy = custody.take("a", b"content", max_bytes=1000)
    custody.take("b", b"content", max_bytes=1000)
    other = Custody(tmp_path / "l.db", SECRET)

    def free(one: Custody) -> bool:
        with one.alone(copy.digest, 0.0) as alone:
            return alone

    assert (free(custody), free(other)) == (False, False)
    custody.let(copy.digest)
    assert (free(custody), free(other)) == (False, False)
    custody.let(copy.digest)
    assert (free(custody), free(other)) == (True, True)
    with custody.alone("0" * 64, 0.0) as alone:
        assert not alone, "there is nothing of it"


def test_who_takes_a_copy_waits_for_who_removes_it(custody: Custody, tmp_path: Path) -> None:
    """SC-40: and stands there afterwards."""
    digest = custody.take("a", b"content", max_bytes=1000).digest
    custody.let(digest)
    taker = threading.Thread(target=lambda: Custody(tmp_path / "l.db", SECRET).take("a", b"content", max_bytes=1000))
    with custody.alone(digest, 0.0) as alone:
        assert alone
        taker.start()
        assert custody.set_aside(digest) is not None
        taker.join(0.2)
        assert taker.is_alive()
        assert not custody.path(digest).exists()
    taker.join()
    assert custody.problem(digest, 7) is None


def test_who_takes_a_copy_does_not_wait_for_ever(
    custody: Custody, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SC-40, G12: a process that was stopped while it removed one; a typed error, and nothing is left or held."""
    monkeypatch.setattr(module, "MEDIA_HOLD_WAIT_S", 0.1)
    digest = custody.take("a", b"content", max_bytes=1000).digest
    custody.let(digest)
    before = len(os.listdir("/dev/fd"))
    with custody.alone(digest, 0.0) as alone:
        assert alone
        raised: list[BaseException] = []

        def take() -> None:
            with pytest.raises(StoreLocked) as caught:
                Custody(tmp_path / "l.db", SECRET).take("a", b"content", max_bytes=1000)
            raised.append(caught.value)

        taker = threading.Thread(target=take, daemon=True)
        taker.start()
        taker.join(10.0)
        assert raised
    assert files(custody) == [custody.path(digest)]
    assert len(os.listdir("/dev/fd")) == before


def test_the_folders_are_durable_whoever_made_them(
    custody: Custody, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G2, SC-40: another one that made a folder need not have come to syncing it, and the worker's lock does not."""
    synced: list[Path] = []

    def sync(folder: Path) -> None:
        synced.append(folder)
        sync_folder(folder)

    monkeypatch.setattr(module, "sync_folder", sync)
    owner = Owner(tmp_path / "l.db")
    owner.hold("w")
    copy = custody.take("a", b"content", max_bytes=1000)
    place = custody.path(copy.digest)
    assert {tmp_path, custody.folder.parent, custody.folder, place.parent} <= set(synced)
    synced.clear()
    custody.take("a", b"content", max_bytes=1000)
    assert synced == [place.parent], "once a process"
    owner.release()


def test_many_may_take_the_same_content_at_once(tmp_path: Path) -> None:
    """SC-40: from threads and, as they share nothing, from processes."""
    found: list[str] = []

    def take() -> None:
        one = Custody(tmp_path / "l.db", SECRET)
        found.extend(one.take("a", b"z" * MIB, max_bytes=MIB).digest for _ in range(5))

    threads = [threading.Thread(target=take) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    custody = Custody(tmp_path / "l.db", SECRET)
    assert len(found) == 30
    assert files(custody) == [custody.path(found[0])]
    assert custody.problem(found[0], MIB) is None
