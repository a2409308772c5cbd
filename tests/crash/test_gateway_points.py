"""SIGKILL at every passage of every crash point, for every kind of operation, and what the platform holds afterwards.

A chain is one ledger and one platform. Each of its steps does one operation and is killed at the k-th passage of a
point, for k = 1, 2, ... until the process ends by itself; the step after it begins with the recovery. `recovery` is an
operation too: what it recovers was killed around the request, and then it is killed itself.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import count
from pathlib import Path

import msgspec
import pytest
from msgledger.ledger.store.crash import OUTBOUND

from .gateway_kit import (
    KILLED,
    SCRIPT,
    Crash,
    Ledger,
    Op,
    Process,
    QaPlatform,
    Truth,
    Way,
    marked,
    own_truth,
    qa_truth,
)

HITS_MAX = 20
AT_ONCE = 8
PLACE = "here"
DEADLINE_S = 0.45

ALIKE = {"before-begin", "after-begin", "after-insert", "before-wake"}
"""To the file the first three are one with `before-commit`, the last with `after-commit`: not every case needs them."""
RECORDING = {"before-record", "after-record"}
SENDING = {"before-deliver", "after-deliver", "after-fact"}
PREPARING = {"after-prepare"}
"""Where something has to be uploaded first."""


@dataclass(frozen=True)
class Case:
    """A channel and what it does; `licence` is what may reopen an unknown outcome there."""

    channel: str
    licence: str
    kind: str

    @property
    def id(self) -> str:
        return f"{self.channel}-{self.licence}-{self.kind}"

    def way(self, folder: Path, url: str) -> Way:
        return Way(
            kind=self.channel,
            at=url if self.channel == "qa" else str(folder / "own.jsonl"),
            key=self.licence == "key",
            look_up=self.licence == "look_up",
            deadline_s=5.0 if self.licence == "key" else DEADLINE_S,
        )

    def points(self) -> list[str]:
        """Where it is killed."""
        left_out = (set() if self in WHOLE else ALIKE) | (set() if self.kind == "media" else PREPARING)
        return [point for point in OUTBOUND if point not in left_out]

    def must_pass(self) -> set[str]:
        """The points that the operation cannot go without."""
        if self.kind in ("recovery", "look-up"):
            points = set(self.points()) - RECORDING - PREPARING
            points -= set() if self.licence == "look_up" else {"after-look-up"}
            return points - (SENDING if self.licence == "nothing" else set())
        return set(self.points()) - {"after-look-up"}


WHOLE = [
    *(Case("own", "look_up", kind) for kind in ("batch", "recovery", "send", "edit", "delete")),
    Case("qa", "look_up", "look-up"),
    Case("own", "copy", "recovery"),
]
CASES = [
    Case("own", "nothing", "batch"),
    Case("qa", "look_up", "batch"),
    *WHOLE,
    Case("own", "nothing", "recovery"),
    *(Case("qa", "key", kind) for kind in ("media", "send", "batch", "edit", "delete", "recovery")),
    *(Case("qa", "copy", kind) for kind in ("batch", "recovery")),
]
"""The longest first, for they run several at a time."""


@dataclass
class Chain:
    """What one chain led to."""

    case: Case
    ledger: Ledger
    truth: Truth
    ops: list[Op] = field(default_factory=list)
    passed: dict[str, int] = field(default_factory=dict)
    """How often the operation passed each point: as many processes were killed there."""
    early: dict[str, int] = field(default_factory=dict)
    """For each intent, the requests that the platform had seen when its commit was first found."""

    def step(self, process: Process, point: str, hits: int) -> int:
        """One operation, killed there; how the process ended."""
        first = self.ops[-1:]  # killed before it was durable, it is not owed: the caller does it again
        op, before = self._op()
        self.ops += [*before, op]
        crash = Crash(point=point, hits=hits)
        if self.case.kind in ("recovery", "look-up"):
            around = "before-deliver" if point in SENDING or hits % 2 == 0 else "after-deliver"
            assert process.run(self.ledger.life(op, crash=Crash(point=around))) == KILLED
            self.look()
            life = self.ledger.life(crash=msgspec.structs.replace(crash, since="open"))
        else:
            life = self.ledger.life(op, first=[*first, *before], crash=crash)
        status = process.run(life)
        self.look()
        recorded = sum(row[3] == "IntentRecorded" for row in self.ledger.rows)
        for done in self.ops[:recorded]:
            for file in done.files:
                Path(file).unlink(missing_ok=True)  # what is recorded is owed, whatever becomes of its source
        return status

    def _op(self) -> tuple[Op, list[Op]]:
        number = len(self.ops)
        copies = self.case.licence == "copy"
        op = Op(key=f"key-{number}", place=PLACE, text=f"text-{number}", copies=copies)
        match self.case.kind:
            case "media":
                source = self.ledger.folder / f"{op.text}.source"
                source.write_bytes(content_of(op))
                return msgspec.structs.replace(op, files=[str(source)]), []
            case "batch":
                return msgspec.structs.replace(op, parts=4), []
            case "edit" | "delete" as kind:
                first = Op(key=f"first-{number}", place=PLACE, text=f"first-{number}")
                return msgspec.structs.replace(op, do=kind, of=first.key, of_text=first.text), [first]
            case _:
                return op, []

    def look(self) -> None:
        self.ledger.look()
        asked = self.requests()
        assert asked.keys() <= {row[1] for row in self.ledger.rows}, "the platform saw what was not recorded"
        if fresh := self.ledger.committed() - self.early.keys():
            self.early |= {intent: asked[intent] for intent in fresh}

    def requests(self) -> Counter[str]:
        """How many the platform has seen of each intent, by the key that it was given."""
        keys = [str(line["key"]) for line in self.truth.requests()]
        return Counter(f"{key[:8]}-{key[8:12]}-{key[12:16]}-{key[16:20]}-{key[20:32]}" for key in keys)


def lived(case: Case, folder: Path, platform: QaPlatform | None) -> Chain:
    """The whole chain of a case, up to a last life that ends by itself."""
    ledger = Ledger(folder, case.way(folder, "" if platform is None else platform.url))
    truth = own_truth(folder / "own.jsonl") if platform is None else qa_truth(platform)
    chain = Chain(case, ledger, truth)
    with Process() as process:
        for point in case.points():
            for hits in count(1):
                status = chain.step(process, point, hits)
                assert status in (0, KILLED), (folder / "said.log").read_text()[-3000:]
                assert hits < HITS_MAX
                if status == 0:
                    break
                chain.passed[point] = hits
        assert process.run(ledger.life()) == 0
    return chain


@pytest.fixture(scope="module")
def chains(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Case, Future[Chain]]]:
    """Every chain, several at a time: most of their time they wait for a lease to end."""

    def live(case: Case, folder: Path) -> Chain:
        if case.channel == "own":
            return lived(case, folder, None)
        with QaPlatform.start(folder) as platform:
            return lived(case, folder, platform)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {case: pool.submit(live, case, tmp_path_factory.mktemp(case.id)) for case in CASES}


@pytest.fixture(params=CASES, ids=lambda case: case.id)
def chain(request: pytest.FixtureRequest, chains: dict[Case, Future[Chain]]) -> Chain:
    return chains[request.param].result(100)


def test_nothing_is_lost_or_doubled(chain: Chain) -> None:
    """G1, G2, G3, G4, G6, G7, G9, SC-01, SC-14, SND-4, UNK-1, UNK-3, UNK-4, CORE-7, REC-3, REC-6, REC-7, REC-8, OB-5,
    OB-6, OB-7; and of a message of four parts, killed behind each: BAT-3, BAT-7, OB-19, SC-36, SC-37, SC-38, SC-39.

    `Chain.look` has checked after each death that nothing acknowledged or readable is gone, and all of it recorded.
    """
    rows = chain.ledger.end()
    by_key = {line["key"]: line["intent"] for line in chain.ledger.said()}
    assert set(by_key) <= {op.key for op in chain.ops}
    open_ones = {id: row for id, row in rows.items() if row["status"] not in ("sent", "failed", "cancelled")}
    assert all(row["hold"] == "unresolved" for row in open_ones.values())
    assert [row for row in rows.values() if row["status"] in ("failed", "cancelled")] == []
    if chain.case.licence != "nothing":
        assert open_ones == {}
    asked = chain.requests()
    assert chain.early == {intent: asked[intent] for intent in chain.early}, "a committed intent was sent again"

    shown = [text for op in chain.ops for text in texts_of(op)]
    firsts = first_copies(chain.truth.texts())
    assert firsts == [text for text in shown if text in firsts], "the order is not that of recording"
    visible = Counter(chain.truth.texts())
    for text in shown:
        seen, copies = visible[text], visible[marked(text)]
        match chain.case.licence:
            case "key" | "look_up":
                assert (text, seen, copies) == (text, 1, 0)
            case "nothing":
                assert seen <= 1, text
                assert copies == 0, text
            case _:
                assert seen <= 1, f"{text} was copied without its marker"
                assert seen + copies >= 1, f"{text} is lost"


def test_every_id_is_kept(chain: Chain) -> None:
    """G14, RCP-3, OB-4: what the ledger holds as sent is what the platform made, in order, with all its ids."""
    made: dict[str, list[str]] = {}
    for line in chain.truth.lines():
        made.setdefault(str(line["key"])[:32], []).append(str(line["id"]))
    for intent, body in chain.ledger.events("IntentCommitted"):
        ids = made[intent.replace("-", "")]
        if chain.case.licence == "copy":
            assert set(body["platform_ids"]) <= set(ids)
        else:
            assert body["platform_ids"] == ids


def test_copies_are_counted_and_allowed(chain: Chain) -> None:
    """UNK-7, OB-7, G4: each marked copy on the platform is an attempt with that licence; without one there is none."""
    allowed = [body for _, body in chain.ledger.events("AttemptStarted") if body.get("marked")]
    copies = [line for line in chain.truth.sends() if str(line["text"]).startswith(marked("").strip())]
    assert len(copies) <= len(allowed)
    assert all(body["licence"] == "at_least_once" for body in allowed)
    if chain.case.licence == "copy" and chain.case.kind == "recovery":
        assert copies
    elif chain.case.licence != "copy":
        assert allowed == []


def test_edits_and_deletes_are_done_once(chain: Chain) -> None:
    """SND-4, UNK-1, SC-14: each reached its own message, in one request that counted."""
    for op in chain.ops:
        if op.do != "send":
            (first,) = [line for line in chain.truth.sends() if line["text"].split()[0] == op.of_text]
            done = chain.truth.of(op.do, first["id"])
            assert len(done) == 1, (op, done)
            assert op.do == "delete" or done[0]["text"] == op.text


def test_files_are_those_that_were_recorded(chains: dict[Case, Future[Chain]]) -> None:
    """SC-40, SC-43, REC-4: each source was gone once its message was recorded, by whichever life; killed between
    the upload and the message it is uploaded again. What is still kept, nothing needs."""
    chain = chains[Case("qa", "key", "media")].result(100)
    shown = {line["media"]["name"]: line["media"]["sha256"] for line in chain.truth.sends() if line["media"]}
    assert shown == {op.names[0]: sha256(content_of(op)).hexdigest() for op in chain.ops}
    assert not any(Path(op.files[0]).exists() for op in chain.ops)
    assert chain.passed["after-prepare"] == 1
    assert chain.ledger.needs() == 0


def test_every_point_was_hit(chain: Chain) -> None:
    """SND-4: a point that an operation never passes would show nothing. Among them the cases pass them all."""
    assert {point for case in CASES for point in case.must_pass()} == set(OUTBOUND)
    assert set(chain.passed) >= chain.case.must_pass(), chain.passed


def test_a_restart_sends_what_was_recorded(tmp_path: Path) -> None:
    """REC-4, OB-20, TGT-1, REL-1, BAT-6: target, thread, reply-to and format are those of the record, also in a part
    that was not sent before."""
    ledger = Ledger(tmp_path, Way(kind="own", at=str(tmp_path / "own"), deadline_s=DEADLINE_S))
    op = Op(key="k", place=PLACE, text="text", parts=2, reply_to="m1", thread="t1", format="markdown")
    with Process() as process:
        assert process.run(ledger.life(op, crash=Crash(point="before-deliver"))) == KILLED
        assert process.run(ledger.life(crash=Crash(point="before-deliver", hits=2, since="open"))) == KILLED
        assert process.run(ledger.life()) == 0
    first, second = own_truth(tmp_path / "own").sends()
    for line in (first, second):
        assert (line["place"], line["thread"], line["format"]) == (PLACE, "t1", "markdown")
    assert (first["reply_to"], second["reply_to"]) == ("m1", None)
    ledger.end()


def test_the_environment_kills_too(tmp_path: Path) -> None:
    """G2, G9: a process that was started with `MSGLEDGER_CRASH_AT` dies there, and its ledger is taken up again."""
    started: list[tuple[str, Ledger, subprocess.Popen[bytes]]] = []
    op = Op(key="k", place=PLACE, text="once")
    for point in OUTBOUND:
        ledger = Ledger(
            tmp_path / point, Way(kind="own", at=str(tmp_path / point / "own.jsonl"), deadline_s=DEADLINE_S)
        )
        life = msgspec.json.encode(ledger.life(op)).decode()
        environment = os.environ | {"MSGLEDGER_CRASH_AT": point}
        started.append((point, ledger, subprocess.Popen([sys.executable, "-P", str(SCRIPT), life], env=environment)))
    with Process() as process:
        for point, ledger, killed in started:
            hit = point not in ("after-look-up", "after-prepare")  # nothing is in doubt, and nothing to upload
            assert killed.wait(30) == (-signal.SIGKILL if hit else 0), point
            ledger.look()
            assert process.run(ledger.life(op)) == 0
            ledger.end()
            assert own_truth(tmp_path / point / "own.jsonl").texts() == ["once"]
            assert json.loads((ledger.folder / "said").read_bytes().splitlines()[-1])["status"] == "sent"


def texts_of(op: Op) -> list[str]:
    if op.do != "send":
        return []
    if op.files:
        return [op.text, *op.names]
    return [op.text] if op.parts == 1 else [f"{op.text}.{part}" for part in range(op.parts)]


def content_of(op: Op) -> bytes:
    return f"the file of {op.text}, ".encode() * 20_000


def first_copies(texts: list[str]) -> list[str]:
    """Each message at its first appearance, marked or not."""
    return list(dict.fromkeys(text.removeprefix(marked("")) for text in texts))
