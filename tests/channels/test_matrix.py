"""The Matrix adapter without a homeserver: what it takes an answer to mean, and whose token it has."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import pytest
from msgledger.adapters.exchange import Answer
from msgledger.adapters.matrix import MATRIX, MatrixChannel
from msgledger.ledger.errors import InvalidConfig
from msgledger.ledger.message import RenderedUnit
from msgledger.ledger.outcome import Accepted, FailureClass, Outcome, Rejected, Unknown

from .contract import context
from .matrix_kit import ROOM

TOKEN = "syt_s3cret-of-the-tests"


def channel(
    token: str = TOKEN, device_id: str | None = "BOT", homeserver: str = "https://example.org"
) -> MatrixChannel:
    return MatrixChannel(homeserver, user_id="@bot:example.org", token=token, device_id=device_id)


def whoami(status: int = 200, **said: Any) -> Answer:
    return Answer(status, {}, json.dumps(said or {"user_id": "@bot:example.org", "device_id": "BOT"}).encode())


def parse(status: int, body: object = None, **headers: str) -> Outcome:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    adapter, unit, told = channel().adapter, RenderedUnit(0, text="hi"), context(ROOM)
    return adapter.parse(unit, told, adapter.build(unit, told), Answer(status, headers, raw))


class TestAnswers:
    @pytest.mark.parametrize(
        ("status", "errcode", "failure"),
        [
            (401, "M_UNKNOWN_TOKEN", FailureClass.AUTH),
            (401, "M_MISSING_TOKEN", FailureClass.AUTH),
            (403, "M_FORBIDDEN", FailureClass.PERMISSION),
            (404, "M_NOT_FOUND", FailureClass.NOT_FOUND),
            (400, "M_BAD_JSON", FailureClass.INVALID_PAYLOAD),
            (400, "M_NOT_JSON", FailureClass.INVALID_PAYLOAD),
            (400, "M_UNKNOWN", FailureClass.INVALID_PAYLOAD),
            (413, "M_TOO_LARGE", FailureClass.INVALID_PAYLOAD),
            (429, "M_LIMIT_EXCEEDED", FailureClass.RATE_LIMIT),
        ],
    )
    def test_a_refusal_has_its_class(self, status: int, errcode: str, failure: FailureClass) -> None:
        """FAIL-2, FAIL-3, FAIL-4, FAIL-5, FAIL-11: a well-formed refusal, with the platform's own code."""
        outcome = parse(status, {"errcode": errcode, "error": "No."})
        assert isinstance(outcome, Rejected)
        assert (outcome.failure, outcome.code, outcome.status, outcome.detail) == (failure, errcode, status, "No.")

    @pytest.mark.parametrize(
        ("status", "body"),
        [
            (500, {"errcode": "M_UNKNOWN", "error": "Internal server error"}),
            (502, b"<html>Bad Gateway</html>"),
            (504, {"errcode": "M_UNKNOWN"}),
            (403, b"<html>Forbidden</html>"),
            (404, b""),
            (404, {"error": "no code"}),
            (400, {"errcode": 7}),
            (413, b"<html>Request Entity Too Large</html>"),
            (429, ["M_LIMIT_EXCEEDED"]),
            (408, {"errcode": "M_UNKNOWN"}),
            (409, {"errcode": "M_UNKNOWN"}),
            (301, {"errcode": "M_UNKNOWN"}),
            (200, b'{"event_id": "$cut'),
            (200, b"[]"),
            (202, {"event_id": "$1"}),
        ],
    )
    def test_everything_else_proves_nothing(self, status: int, body: object) -> None:
        """FAIL-9, FAIL-10, FAIL-11: a server error, another shape, or a proxy's page may hide an event that stands."""
        outcome = parse(status, body)
        assert isinstance(outcome, Unknown)
        assert outcome.status == status

    def test_a_rate_limit_says_how_long(self) -> None:
        """FAIL-2, SC-08: the longer of header and body, for the whole account."""
        said = {"errcode": "M_LIMIT_EXCEEDED", "error": "Too Many Requests", "retry_after_ms": 4_500}
        for headers, wait_s in (({}, 4.5), ({"retry-after": "5"}, 5.0), ({"retry-after": "3600"}, 3600.0)):
            outcome = parse(429, said, **headers)
            assert isinstance(outcome, Rejected)
            assert (outcome.retry_after_s, outcome.scope) == (wait_s, "account")
        silent = parse(429, {"errcode": "M_LIMIT_EXCEEDED"})
        assert isinstance(silent, Rejected)
        assert silent.retry_after_s is None

    def test_an_acceptance_is_the_event_id(self) -> None:
        """RCP-1, CAP-5, GAP-10: without one it is no receipt, and the core takes it as unknown."""
        assert parse(200, {"event_id": "$1"}) == Accepted("$1", status=200)
        assert parse(200, {}) == parse(200, {"event_id": ""}) == parse(200, {"event_id": 5}) == Accepted(status=200)

    def test_an_edit_or_redaction_is_two_ids(self) -> None:
        """RCP-3, RCP-4: the message, then the event that changed it; without the latter it is no receipt."""
        adapter, unit = channel().adapter, RenderedUnit(0, text="hi")
        for action in ("edit", "delete"):
            told = context(ROOM, action=action, of_platform_id="$of")
            request = adapter.build(unit, told)
            done = adapter.parse(unit, told, request, Answer(200, {}, b'{"event_id": "$1"}'))
            assert isinstance(done, Accepted)
            assert [part.platform_id for part in done.parts] == ["$of", "$1"]
            assert adapter.parse(unit, told, request, Answer(200, {}, b"{}")) == Accepted(status=200)


class TestIdentity:
    def test_it_is_ready_once_the_token_has_a_device(self) -> None:
        """REC-11: and not before, whether the device was given or is learned."""
        for made in (channel(), channel(device_id=None)):
            assert not made.adapter.ready
            made.adapter.learn(whoami())
            assert made.adapter.ready
            assert made.credential == "https://example.org @bot:example.org device BOT"

    def test_the_window_belongs_to_the_device(self) -> None:
        """R5: a new token of the device keeps the credential, another device is another one; no token is in it."""
        first, renewed, other = channel(device_id=None), channel("renewed", None), channel(device_id=None)
        unlearned = first.credential
        for made, device in ((first, "BOT"), (renewed, "BOT"), (other, "TWO")):
            made.adapter.learn(whoami(user_id="@bot:example.org", device_id=device))
        assert first.credential == renewed.credential
        assert len({first.credential, other.credential, unlearned, channel("renewed", None).credential}) == 4
        assert TOKEN not in first.credential + unlearned

    @pytest.mark.parametrize(("status", "errcode"), [(401, "M_UNKNOWN_TOKEN"), (403, "M_USER_DEACTIVATED")])
    def test_a_refused_token_is_ready_to_be_refused(self, status: int, errcode: str) -> None:
        """FAIL-4, SC-04: its intents are held as `auth`; they do not wait for a channel that never comes."""
        made = channel(device_id=None)
        made.adapter.learn(whoami(status, errcode=errcode))
        assert made.adapter.ready
        assert "device" not in made.credential

    @pytest.mark.parametrize("answer", [Answer(502, {}, b"<html>"), Answer(401, {}, b"<html>"), Answer(200, {}, b"{}")])
    def test_an_answer_that_says_nothing_changes_nothing(self, answer: Answer) -> None:
        """REC-11: a proxy's page names no device."""
        made = channel()
        made.adapter.learn(answer)
        assert not made.adapter.ready

    @pytest.mark.parametrize(
        ("said", "wrong"),
        [
            ({"user_id": "@eve:example.org", "device_id": "BOT"}, "@eve:example.org"),
            ({"user_id": "@bot:example.org", "device_id": "TWO"}, "TWO"),
            ({"user_id": "@bot:example.org"}, "without a device"),
        ],
    )
    def test_somebody_elses_token_is_refused(self, said: dict[str, str], wrong: str) -> None:
        """CAP-6, SC-04: its window would be another's; the error names what is wrong and never the token."""
        made = channel()
        with pytest.raises(InvalidConfig, match=wrong) as refusal:
            made.adapter.learn(whoami(**said))
        assert not made.adapter.ready
        assert TOKEN not in str(refusal.value)

    def test_another_homeservers_window(self) -> None:
        """R5, CAP-6: it is what the configuration says, and no longer what was tried."""
        short = MatrixChannel("https://example.org", user_id="@bot:example.org", token=TOKEN, window_s=600.0)
        key, own = short.capabilities.idempotency, MATRIX.idempotency
        assert key is not None and own is not None
        assert (key.window_s, key.evidence) == (600.0, "documented")
        assert (own.window_s, own.evidence) == (86_400.0, "proved")

    @pytest.mark.parametrize("user_id", ["bot", "@bot", "bot:example.org", "@bot: example.org", ""])
    def test_a_user_id_is_needed(self, user_id: str) -> None:
        """CAP-6: it is part of what the window belongs to."""
        with pytest.raises(InvalidConfig, match="user id"):
            MatrixChannel("https://example.org", user_id=user_id, token=TOKEN)

    def test_the_token_is_in_the_header_alone(self) -> None:
        """It is in nothing that is printed, recorded or digested."""
        made = channel()
        unit = RenderedUnit(0, text="hi")
        request = made.adapter.build(unit, context(ROOM))
        assert made.adapter.authorize(request) == {"authorization": f"Bearer {TOKEN}"}
        printed = f"{made!r} {made.adapter!r} {request!r} {vars(made)}"
        assert TOKEN not in printed
        assert TOKEN.encode() not in made.request_bytes(unit, context(ROOM))

    def test_a_homeserver_that_is_down_is_asked_again(self) -> None:
        """REC-11, SC-23: not ready, asked with growing waits, and quiet after `close`."""
        waits: list[float] = []

        async def run() -> bool:
            enough = asyncio.Event()

            async def pause(seconds: float) -> None:
                waits.append(seconds)
                if len(waits) == 7:
                    enough.set()
                    await asyncio.Event().wait()

            with socket.socket() as taken:
                taken.bind(("127.0.0.1", 0))  # and never listening: refused
                url = f"http://127.0.0.1:{taken.getsockname()[1]}"
                made = MatrixChannel(url, user_id="@bot:example.org", token=TOKEN, pause=pause)
                await made.open()
                await asyncio.wait_for(enough.wait(), 10)
                ready = made.ready
                await made.close()
            assert asyncio.all_tasks() == {asyncio.current_task()}
            return ready

        assert asyncio.run(run()) is False
        assert waits == [1.0, 2.0, 5.0, 10.0, 30.0, 30.0, 30.0]
