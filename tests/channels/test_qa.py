"""The qa channel under the contract, in its full form and in every weaker one, and its mapping of errors."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgledger.adapters.exchange import Answer, Request
from msgledger.adapters.qa import QA, QaAdapter, qa_channel
from msgledger.adapters.qa_platform import QaPlatform
from msgledger.adapters.receiving import Event
from msgledger.adapters.surface import Channel, FallsBack, Idempotency, Lookup, RenderContext
from msgledger.ledger.message import Message, RenderedBatch, RenderedUnit, Target
from msgledger.ledger.outcome import Accepted, FailureClass, Rejected, Unknown, Unresolved

from .conftest import TOKEN
from .contract import Bench, ChannelContract, Seen, accepted, context, identity, rendered, sent, unique

KEY = QA.idempotency
assert KEY is not None


class QaBench(Bench):
    secret = TOKEN

    def __init__(self, platform: QaPlatform, **overrides: Any) -> None:
        self.platform = platform
        self.place = unique("place")
        self.overrides = overrides

    def channel(self) -> Channel:
        return qa_channel(self.platform.url, token=TOKEN, **self.overrides)

    def target(self, thread: str | None = None) -> Target:
        return Target.group("qa", self.place, thread=thread)

    def visible(self, target: Target) -> list[Seen]:
        standing: dict[str, Seen] = {}
        for line in self.platform.accepted():
            if line["place"] != target.id:
                continue
            name = f"{line['id']}" if line["id"] is not None else f"order {line['order']}"
            if line["action"] == "delete":
                del standing[name]
                continue
            url = (line["media"] or {}).get("url")
            standing[name] = Seen(
                None if line["id"] is None else str(line["id"]), line["text"], line["thread"], line["reply_to"], url
            )
        return list(standing.values())

    def events(self, target: Target) -> list[Event]:
        return [line for line in self.platform.accepted() if line["place"] == target.id]

    def lose_next_answer(self) -> None:
        self.platform.script("accept_drop", place=self.place)

    def withhold_next_id(self) -> None:
        self.platform.script("accept_no_id", place=self.place)

    def refuse_next(self, failure: FailureClass, retry_after_s: float | None = None) -> None:
        action: dict[str, Any] = {"do": "reject", "class": failure.value}
        if retry_after_s is not None:
            action["retry_after"] = retry_after_s
        self.platform.script(action, place=self.place)


WEAKER: dict[str, dict[str, Any]] = {
    "full": {},
    "no idempotency": {"idempotency": None},
    "no look-up": {"reconcile": None},
    "nothing": {"idempotency": None, "reconcile": None, "edit": None, "delete": None},
    "absence unproved": {"reconcile": Lookup("by_key")},
    "no threads, no media": {"threads": False, "attachments": "none"},
    "no ids": {"receipt": "none", "reconcile": None},
    "paced": {"per_second": 5.0},
    "no metadata": {"origin": "registry"},
}


@pytest.fixture(params=WEAKER, ids=str)
def bench(qa: QaPlatform, request: pytest.FixtureRequest) -> QaBench:
    return QaBench(qa, **WEAKER[request.param])


class TestQa(ChannelContract):
    """CAP-6 in every form of the platform."""


@pytest.mark.parametrize("how", ["conflict_with_id", "conflict"])
def test_a_conflict_on_our_own_key_is_a_receipt(qa: QaPlatform, how: str) -> None:
    """FAIL-7: the message is there, with its id where the platform gives it, else without identity."""
    bench = QaBench(qa)
    qa.settings(on_duplicate=how)
    message, key = Message.text("twice", to=bench.target()), unique("key")
    first, second = (accepted(sent(bench.channel(), message, key=key)[0]) for _ in range(2))
    assert second.duplicate and not first.duplicate
    assert identity(second) == (identity(first) if how == "conflict_with_id" else None)
    assert len(bench.visible(bench.target())) == 1


def test_a_conflict_on_another_key_is_a_conflict(qa: QaPlatform) -> None:
    """FAIL-7: only our own key is our own message."""
    bench = QaBench(qa)
    qa.script({"do": "reject", "class": "conflict", "code": "duplicate_key", "key": "foreign"}, place=bench.place)
    (outcome,) = sent(bench.channel(), Message.text("x", to=bench.target()))
    assert isinstance(outcome, Rejected)
    assert outcome.failure is FailureClass.CONFLICT


def test_without_deduplication_two_requests_are_two_messages(qa: QaPlatform) -> None:
    """CORE-2: the contract's test of a key can fail, because a platform without it shows two."""
    bench = QaBench(qa, idempotency=None)
    message, key = Message.text("twice", to=bench.target()), unique("key")
    for _ in range(2):
        accepted(sent(bench.channel(), message, key=key)[0])
    assert len(bench.visible(bench.target())) == 2


@pytest.mark.parametrize(
    ("action", "cause"),
    [
        ("accept_drop", "reset"),
        ("drop", "reset"),
        ("accept_truncated", "reset"),
        ("malformed", "malformed_answer"),
        ("redirect", "malformed_answer"),
        ("accept_no_id", "no_identity"),
        ({"do": "server_error", "accepted": True}, "server_error"),
        ({"do": "server_error", "accepted": False}, "server_error"),
        ({"do": "server_error", "status": 502}, "server_error"),
        ({"do": "reject", "class": "invalid_payload", "status": 200}, "no_identity"),
        ({"do": "reject", "class": "brand_new", "status": 422}, "malformed_answer"),
    ],
)
def test_what_proves_nothing_is_unknown(qa: QaPlatform, action: Any, cause: str) -> None:
    """FAIL-9, FAIL-10, FAIL-11: a lost, truncated, malformed or nameless answer, a redirect and a 5xx."""
    bench = QaBench(qa)
    qa.script(action, place=bench.place)
    (outcome,) = sent(bench.channel(), Message.text("x", to=bench.target()))
    assert isinstance(outcome, Unknown)
    assert outcome.cause.value == cause


def test_a_request_that_is_applied_late(qa: QaPlatform) -> None:
    """R1: absence seen right after a lost answer proves nothing, which is why it counts after the lease end only."""
    bench = QaBench(qa)
    qa.script({"do": "accept_late", "after_s": 0.15}, place=bench.place)
    (outcome,) = sent(bench.channel(), Message.text("late", to=bench.target()))
    assert isinstance(outcome, Unknown)
    assert bench.visible(bench.target()) == []
    ends = time.monotonic() + 5
    while not bench.visible(bench.target()):
        assert time.monotonic() < ends, "it never landed"
        time.sleep(0.01)


def test_the_scope_of_a_rate_limit(qa: QaPlatform) -> None:
    """FAIL-2: whom the platform told to wait comes along, from header or body."""
    bench = QaBench(qa)
    for form, scope in (("header", "lane"), ("json", "account")):
        limit = {"do": "rate_limit", "retry_after_s": 7, "form": form}
        qa.script(limit if form == "header" else {**limit, "scope": scope}, place=bench.place)
        (outcome,) = sent(bench.channel(), Message.text("x", to=bench.target()))
        assert isinstance(outcome, Rejected)
        assert (outcome.retry_after_s, outcome.scope) == (7.0, scope)


def test_a_wrong_token(qa: QaPlatform) -> None:
    """FAIL-4: the platform's own check, not a scripted one."""
    bench = QaBench(qa)
    channel = qa_channel(qa.url, token="wrong")
    (outcome,) = sent(channel, Message.text("x", to=bench.target()))
    assert isinstance(outcome, Rejected)
    assert outcome.failure is FailureClass.AUTH
    assert channel.config != bench.channel().config
    assert channel.credential != bench.channel().credential


def fall_back(
    channel: Channel, message: Message, code: str | None, failure: str = "invalid_payload"
) -> RenderedBatch | None:
    assert isinstance(channel, FallsBack)
    told = RenderContext(at=1, intent="i")
    return channel.fallback(message, channel.render(message, told), FailureClass(failure), told, code)


def test_the_fallbacks(qa: QaPlatform) -> None:
    """FAIL-3, SC-19, SC-20: plain for a format, smaller pieces for a length, no reply for a gone target, else none."""
    bench = QaBench(qa)
    channel, target = bench.channel(), bench.target()
    formatted = Message.text("*hi*", to=target, format="markdown")
    for code in ("format_unsupported", None):
        plan = fall_back(channel, formatted, code)
        assert plan is not None
        assert [unit.format for unit in plan.units] == ["plain"]
    assert fall_back(channel, Message.text("hi", to=target), "format_unsupported") is None
    assert fall_back(channel, formatted, "empty") is None
    long = Message.text("word " * 300, to=target)
    plan = fall_back(channel, long, "too_long")
    assert plan is not None
    assert [unit.index for unit in plan.units] == [0, 1]
    assert " ".join(unit.text or "" for unit in plan.units).split() == ["word"] * 300
    assert fall_back(channel, Message.text("hi", to=target), "too_long") is None
    plan = fall_back(channel, long, "reply_target_gone", "not_found")
    assert plan is not None
    told = context(target, reply_to="gone")
    adapter = QaAdapter(qa.url)
    assert b"reply_to" in adapter.build(rendered(channel, long)[0], told).body
    assert b"reply_to" not in adapter.build(plan.units[0], told).body


BODIES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "id", "class", "code", "key", "detail", "scope", "x"]), inner, max_size=4
        )
    ),
    max_leaves=8,
)


@settings(max_examples=400, deadline=None)
@given(
    status=st.integers(200, 599),
    body=BODIES.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=60),
    headers=st.dictionaries(st.sampled_from(["retry-after", "date", "location", "x-request-id"]), st.text(max_size=20)),
)
def test_any_answer_maps_into_the_closed_set(status: int, body: bytes, headers: dict[str, str]) -> None:
    """FAIL-10, FAIL-11: whatever comes, it is one of three outcomes, and a refusal only where one was well-formed."""
    adapter = QaAdapter("http://127.0.0.1:1")
    told = context(Target.group("qa", "p"), key="own")
    outcome = adapter.parse(RenderedUnit(0, text="x"), told, Request("POST", "/"), Answer(status, headers, body))
    assert isinstance(outcome, Accepted | Rejected | Unknown)
    if isinstance(outcome, Accepted):
        assert status < 300 or outcome.duplicate
    if isinstance(outcome, Rejected):
        assert status >= 300
        assert outcome.failure is not FailureClass.UNKNOWN
        assert status in (401, 429) or b"class" in body
        assert outcome.retry_after_s is None or 0 <= outcome.retry_after_s < float("inf")


@pytest.mark.parametrize("failure", list(FailureClass))
@pytest.mark.parametrize("status", [400, 404, 409, 429, 500, 503])
@pytest.mark.parametrize("accepted", [None, True, False])
def test_a_5xx_is_a_rejection_only_where_the_platform_says_so(
    failure: FailureClass, status: int, accepted: bool | None
) -> None:
    """FAIL-11: the platform's own word `accepted: false` is proof, the status alone is none."""
    error = {"class": failure.value, "code": "c"} | ({} if accepted is None else {"accepted": accepted})
    answer = Answer(status, {}, json.dumps({"error": error}).encode())
    told = context(Target.group("qa", "p"), key="own")
    outcome = QaAdapter("http://h").parse(RenderedUnit(0, text="x"), told, Request("POST", "/"), answer)
    proven = failure is not FailureClass.UNKNOWN and (status < 500 or accepted is False)
    assert isinstance(outcome, Rejected if proven else Unknown)
    if isinstance(outcome, Rejected):
        assert outcome.failure is failure


def test_overrides_make_a_weaker_channel() -> None:
    """CAP-6: what a test takes away is not promised."""
    strong, weak = QaAdapter("http://h"), QaAdapter("http://h", idempotency=None, reconcile=None)
    assert "effectively once" in strong.capabilities.promise()
    assert "held for a person" in weak.capabilities.promise()
    assert not hasattr(weak, "look_up")
    short = QaAdapter("http://h", window_s=3.0)
    assert isinstance(short.capabilities.idempotency, Idempotency)
    assert short.capabilities.idempotency.window_s == 3.0


@pytest.mark.parametrize("status", [401, 404, 429, 500, 503])
def test_only_a_200_of_a_look_up_proves_absence(status: int) -> None:
    """UNK-4: an error page that happens to look like an empty history is none."""
    adapter = QaAdapter("http://h")
    answer = Answer(status, {}, b'{"messages": [], "complete": true}')
    verdict = adapter.parse_look_up(RenderedUnit(0), context(Target.group("qa", "p")), [answer])
    assert isinstance(verdict, Unresolved)


def test_an_edit_into_several_pieces_is_refused(qa: QaPlatform) -> None:
    """The second piece would overwrite the first."""
    bench = QaBench(qa)
    (first,) = sent(bench.channel(), Message.text("before", to=bench.target()))
    long = Message.text("word " * 500, to=bench.target())
    _, second = sent(bench.channel(), long, action="edit", of_platform_id=identity(accepted(first)))
    assert isinstance(second, Rejected)
    assert (second.failure, second.bytes_left) == (FailureClass.INVALID_PAYLOAD, False)
