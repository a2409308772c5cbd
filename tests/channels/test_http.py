"""What HttpChannel adds to adapter and driver: the contract of construction, preparation, and hiding."""

from __future__ import annotations

import asyncio
import email.utils
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from msgledger.adapters.calls import check
from msgledger.adapters.exchange import Answer, Fault, Request, retry_after_s
from msgledger.adapters.http import HttpChannel
from msgledger.adapters.qa import QA, QaAdapter, qa_channel
from msgledger.adapters.qa_platform import QaPlatform
from msgledger.adapters.surface import Channel, FallsBack, Opens, Reconciles, Requests, SendContext
from msgledger.ledger.errors import InvalidConfig, InvalidMessage, SurfaceMismatch
from msgledger.ledger.limits import LOOK_UP_REQUESTS_MAX
from msgledger.ledger.message import Message, RenderedUnit, Target
from msgledger.ledger.outcome import Accepted, FailureClass, NotSent, Proof, Rejected, Unknown, Unresolved, Verdict

from .conftest import TOKEN
from .contract import accepted, context, deliver, opened, unique

UNIT = RenderedUnit(0, text="x")


class Two(QaAdapter):
    """Uploads first: the preparation asks for a message of the place, and `build` needs what came of it."""

    step: Request | None = Request("GET", "/v1/messages", (("place", "nowhere"),))

    def prepare(self, unit: RenderedUnit, told: SendContext) -> Request | None:
        return self.step

    def prepared(self, unit: RenderedUnit, told: SendContext, answer: Answer) -> RenderedUnit | Rejected | Unknown:
        if answer.status != 200:
            return Rejected("permission", "no uploads", status=answer.status)
        return msgspec.structs.replace(unit, text=f"{unit.text} with {answer.json()}")


class Broken(QaAdapter):
    def build(self, unit: RenderedUnit, told: SendContext) -> Request:
        return Request("POST", "/v1/messages", headers=(("x-name", "näme"),))


class Stumbles(QaAdapter):
    def parse(self, unit: RenderedUnit, told: SendContext, request: Request, answer: Answer) -> Any:
        raise KeyError("ok")


def test_the_optional_protocols() -> None:
    """ADP-2, UNK-2: what the lifecycle looks for is there where the adapter has it."""
    channel = qa_channel("http://h")
    for protocol in (Channel, Reconciles, Requests, FallsBack, Opens):
        assert isinstance(channel, protocol)
    assert not isinstance(qa_channel("http://h", reconcile=None), Reconciles)


@pytest.mark.parametrize("url", ["ftp://h", "h", "http://", "http://u:p@h", "http://h?a=b", "http://h#x"])
def test_a_base_url_is_checked(url: str) -> None:
    """Credentials do not belong into a URL, because URLs are digested and printed."""
    with pytest.raises(InvalidConfig) as refusal:
        qa_channel(url)
    assert "u:p" not in str(refusal.value)


def test_declaration_and_function_must_agree() -> None:
    """UNK-2: in both directions, at construction."""

    class Claims(QaAdapter):
        def __init__(self) -> None:
            super().__init__("http://h", reconcile=None)
            self.capabilities = QA

    class Hides(QaAdapter):
        def __init__(self) -> None:
            super().__init__("http://h")
            self.capabilities = msgspec.structs.replace(QA, reconcile=None)

    for wrong in (Claims, Hides):
        with pytest.raises(InvalidConfig, match="look-up"):
            HttpChannel(wrong())
    half = QaAdapter("http://h", reconcile=None)
    half.look_up = lambda unit, told: Request("GET", "/")
    half.capabilities = QA
    with pytest.raises(InvalidConfig, match="parse_look_up"):
        HttpChannel(half)


class Reads(QaAdapter):
    """Asks for so many pages, and says then that nothing is there."""

    pages = 1
    given: list[int]

    def __init__(self, url: str, pages: int) -> None:
        super().__init__(url, token=TOKEN)
        self.pages, self.given = pages, []
        self.parse_look_up = self._read

    def _read(self, unit: RenderedUnit, told: SendContext, answers: Sequence[Answer]) -> Verdict | Request:
        self.given.append(len(answers))
        assert all(answer.status == 200 for answer in answers)
        more = len(answers) < self.pages
        return Request("GET", "/v1/messages", (("key", f"page-{len(answers)}"),)) if more else NotSent()


@pytest.mark.parametrize("pages", [1, 3, LOOK_UP_REQUESTS_MAX])
def test_a_look_up_of_several_requests(qa: QaPlatform, pages: int) -> None:
    """UNK-3, UNK-4: the adapter gets all answers so far, the newest last, until it can tell."""
    adapter = Reads(qa.url, pages)
    channel = HttpChannel(adapter)
    verdict = opened(channel, lambda _: channel.reconcile(UNIT, context(Target.group("qa", "nowhere"))))
    assert verdict == NotSent()
    assert adapter.given == list(range(1, pages + 1))


def test_a_look_up_without_end(qa: QaPlatform) -> None:
    """UNK-5: it has a bound in requests and in time, and what it did not come to is unresolved."""
    told = context(Target.group("qa", "nowhere"))
    adapter = Reads(qa.url, LOOK_UP_REQUESTS_MAX + 1)
    channel = HttpChannel(adapter)
    verdict = opened(channel, lambda _: channel.reconcile(UNIT, told))
    assert verdict == Unresolved("12 requests did not tell", evidence={"pages": 12})
    assert len(adapter.given) == LOOK_UP_REQUESTS_MAX

    qa.script({"do": "slow", "delay_s": 0.3}, times=-1, method="GET")
    late = opened(channel, lambda _: channel.reconcile(UNIT, msgspec.structs.replace(told, deadline_s=1.0)))
    assert isinstance(late, Unresolved) and late.retryable
    assert 1 <= late.evidence["pages"] < LOOK_UP_REQUESTS_MAX


def test_another_surface_shows() -> None:
    """ADP-5: an adapter made for another surface carries its number to where channels are refused."""
    adapter = QaAdapter("http://h")
    check(HttpChannel(adapter))
    adapter.surface = 2  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(SurfaceMismatch, match=r"'qa'.*2.*1"):
        check(HttpChannel(adapter))


def test_ready_once_opened(qa: QaPlatform) -> None:
    """REC-11: before `open` and after `close` nothing is due; an adapter may add its own condition."""

    class Waits(QaAdapter):
        ready = False

    channel = qa_channel(qa.url)
    assert not channel.ready

    async def steps(_: Channel) -> tuple[bool, bool]:
        waiting = HttpChannel(Waits(qa.url))
        await waiting.open()
        found = channel.ready, waiting.ready
        await waiting.close()
        return found

    assert opened(channel, steps) == (True, False)
    assert not channel.ready


def test_a_preparation_comes_first_and_shows_nothing(qa: QaPlatform) -> None:
    """ADP-1, SND-2: one more request, no more messages, and what it gave is in the message."""
    place, key = unique("place"), unique("key")
    looks: list[int] = []

    async def look() -> None:
        looks.append(len(qa.accepted()))

    channel = HttpChannel(Two(qa.url, token=TOKEN))
    before = channel.request_bytes(UNIT, context(Target.group("qa", place), key=key))
    told = context(Target.group("qa", place), key=key, last_look=look)
    accepted(opened(channel, lambda channel: deliver(channel, UNIT, told)))
    (line,) = [line for line in qa.accepted() if line["place"] == place]
    assert line["text"].startswith("x with {")
    assert before == channel.request_bytes(UNIT, told)
    assert len(looks) == 1


@pytest.mark.parametrize(
    ("action", "failure"),
    [("drop", "transient"), ({"do": "server_error"}, "permission"), ({"do": "reject", "class": "auth"}, "permission")],
)
def test_a_failed_preparation_is_proof(qa: QaPlatform, action: Any, failure: str) -> None:
    """FAIL-11: whatever became of the preparation, no message is out; it is charged, so that it comes to an end."""
    place = unique("place")
    qa.script(action, method="GET")
    told = context(Target.group("qa", place))
    outcome = opened(HttpChannel(Two(qa.url, token=TOKEN)), lambda channel: deliver(channel, UNIT, told))
    assert isinstance(outcome, Rejected)
    assert outcome.failure is FailureClass(failure)
    assert outcome.bytes_left
    assert [line for line in qa.accepted() if line["place"] == place] == []


def test_a_unit_that_cannot_be_built_is_refused_unsent(qa: QaPlatform) -> None:
    """FAIL-3: with proof that nothing left."""
    told = context(Target.group("qa", "p"))
    outcome = opened(HttpChannel(Broken(qa.url)), lambda channel: deliver(channel, UNIT, told))
    assert isinstance(outcome, Rejected)
    assert (outcome.failure, outcome.proof, outcome.bytes_left) == (
        FailureClass.INVALID_PAYLOAD,
        Proof.NEVER_DISPATCHED,
        False,
    )


def test_an_adapter_that_stumbles_over_an_answer_proves_nothing(qa: QaPlatform) -> None:
    """FAIL-10: the message is out; a bug in reading the answer makes no failure of it."""
    told = context(Target.group("qa", unique("place")))
    outcome = opened(HttpChannel(Stumbles(qa.url, token=TOKEN)), lambda channel: deliver(channel, UNIT, told))
    assert isinstance(outcome, Unknown)


@pytest.mark.parametrize("action", ["drop", "malformed", {"do": "server_error"}, {"do": "reject", "class": "auth"}])
def test_a_look_up_that_fails_is_unresolved(qa: QaPlatform, action: Any) -> None:
    """UNK-5, UNK-6: a failed look-up never says `not_sent`."""
    channel = qa_channel(qa.url, token=TOKEN)
    qa.script(action, method="GET")
    verdict = opened(channel, lambda _: channel.reconcile(UNIT, context(Target.group("qa", "p"))))
    assert isinstance(verdict, Unresolved)
    assert verdict.retryable


def test_a_look_up_of_an_incomplete_history_proves_no_absence(qa: QaPlatform) -> None:
    """UNK-4: absence needs a history that was read to its end."""
    channel = qa_channel(qa.url, token=TOKEN)
    qa.settings(complete=False)
    try:
        verdict = opened(channel, lambda _: channel.reconcile(UNIT, context(Target.group("qa", "p"))))
    finally:
        qa.settings(complete=True)
    assert isinstance(verdict, Unresolved)


def test_a_lagging_look_up_does_not_see_yet(qa: QaPlatform) -> None:
    """R1: which is why `settle_s` counts the look-up's lag."""
    channel, told = qa_channel(qa.url, token=TOKEN), context(Target.group("qa", unique("place")))

    async def steps(_: Channel) -> tuple[Any, Any, Any]:
        outcome = await channel.deliver(UNIT, told)
        qa.settings(lookup_lag_s=60.0)
        blind = await channel.reconcile(UNIT, told)
        qa.settings(lookup_lag_s=0.0)
        return outcome, blind, await channel.reconcile(UNIT, told)

    outcome, blind, seen = opened(channel, steps)
    assert isinstance(outcome, Accepted)
    assert type(blind).__name__ == "NotSent"
    assert seen.receipt.platform_id == outcome.platform_id


def test_many_at_once(qa: QaPlatform) -> None:
    """ADP-1: one channel, many deliveries in flight, each its own answer."""
    channel, place = qa_channel(qa.url, token=TOKEN), unique("place")

    async def steps(channel: Channel) -> list[Any]:
        units = [RenderedUnit(0, text=f"n{index}") for index in range(60)]
        return await asyncio.gather(*(channel.deliver(unit, context(Target.group("qa", place))) for unit in units))

    receipts = opened(channel, steps)
    lines = {str(line["id"]): line["text"] for line in qa.accepted() if line["place"] == place}
    assert {receipt.platform_id: f"n{index}" for index, receipt in enumerate(receipts)} == lines


DATE = "Mon, 30 Nov 2026 12:00:00 GMT"
LATER = email.utils.format_datetime(email.utils.parsedate_to_datetime("Mon, 30 Nov 2026 12:01:30 GMT"), usegmt=True)


@pytest.mark.parametrize(
    ("headers", "body", "seconds"),
    [
        ({"retry-after": "7"}, b"", 7.0),
        ({"retry-after": LATER, "date": DATE}, b"", 90.0),
        ({"retry-after": DATE, "date": LATER}, b"", 0.0),
        ({}, b'{"retry_after": 1.5}', 1.5),
        ({}, b'{"retry_after_ms": 2500}', 2.5),
        ({}, b'{"parameters": {"retry_after": 9}}', 9.0),
        ({"retry-after": "3"}, b'{"error": {"retry_after": 5}}', 5.0),
        ({}, b'{"retry_after": true}', None),
        ({"retry-after": "-1"}, b"", None),
        ({"retry-after": "nan"}, b"", None),
        ({"retry-after": "soon"}, b"[]", None),
        ({"retry-after": "inf"}, b"not json", None),
        ({}, b"", None),
    ],
)
def test_how_long_to_wait(headers: Mapping[str, str], body: bytes, seconds: float | None) -> None:
    """FAIL-2: header seconds or date, JSON seconds or milliseconds, the longest that makes sense."""
    assert retry_after_s(Answer(429, headers, body)) == seconds


def test_a_date_without_the_answers_own_is_measured_by_the_driver() -> None:
    """FAIL-2: adapters have no clock; the driver stamps the answer."""
    now = email.utils.parsedate_to_datetime(DATE).timestamp()
    assert retry_after_s(Answer(429, {"retry-after": LATER}, at=now)) == 90.0
    assert retry_after_s(Answer(429, {"retry-after": LATER})) is None


@pytest.mark.parametrize(
    "wrong",
    [("POST", "/a\r\nb"), ("PO ST\n", "/a"), ("POST", "a"), ("POST", "/a b"), ("POST", "/a?b"), ("POST", "/ü")],
)
def test_a_request_holds_no_surprises(wrong: tuple[str, str]) -> None:
    """A place with a line end in its name injects nothing."""
    with pytest.raises(InvalidMessage):
        Request(*wrong)


def test_the_bytes_of_json_do_not_depend_on_order() -> None:
    """R5: equal content, equal bytes."""
    one = Request.of_json("POST", "/a", {"b": 1, "a": {"d": 1, "c": 2}})
    assert one.to_bytes() == Request.of_json("POST", "/a", {"a": {"c": 2, "d": 1}, "b": 1}).to_bytes()
    assert one.to_bytes("http://h") != one.to_bytes("http://other")


def test_a_fault_is_proof_only_before_the_bytes() -> None:
    """FAIL-11."""
    assert isinstance(Fault("not_dispatched", "x").outcome(), Rejected)
    for phase in ("dispatched", "response_partial"):
        assert isinstance(Fault(phase, "x").outcome(), Unknown)  # pyright: ignore[reportArgumentType]
    assert Message.text("x", to=Target.direct("c", "d")).body is not None
