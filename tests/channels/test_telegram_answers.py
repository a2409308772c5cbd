"""What the Bot API's answers come to, as it words them; and that nothing else is taken for one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgledger.adapters.exchange import Answer
from msgledger.adapters.receiving import Polled
from msgledger.ledger.message import RenderedUnit
from msgledger.ledger.outcome import Accepted, FailureClass, Outcome, Proof, Rejected, Unknown

from .contract import context
from .telegram_kit import CHAT, accepted, answer, offline, refusal

SENT = {"message_id": 17, "date": 1_700_000_000, "chat": {"id": 7001, "type": "private"}, "text": "hi"}
F = FailureClass


def parsed(found: Answer, action: Any = "send", of: str | None = "17") -> Outcome:
    told = context(CHAT, action=action, of_platform_id=None if action == "send" else of)
    adapter, unit = offline(), RenderedUnit(0, text="hi")
    return adapter.parse(unit, told, adapter.build(unit, told), found)


def test_a_message_that_was_taken() -> None:
    """CH-1, RCP-1: its number and the platform's own time."""
    assert parsed(accepted(SENT)) == Accepted("17", status=200, sent_at=1_700_000_000_000)
    assert parsed(accepted(SENT), "edit") == Accepted("17", status=200, sent_at=1_700_000_000_000)
    assert parsed(accepted(True), "edit") == Accepted("17", status=200)
    assert parsed(accepted(True), "delete") == Accepted("17", status=200)


@pytest.mark.parametrize(
    ("code", "description", "failure", "word"),
    [
        (401, "Unauthorized", F.AUTH, "bad_token"),
        (404, "Not Found", F.AUTH, "bad_token"),
        (404, "Not Found: method not found", F.INVALID_PAYLOAD, "404"),
        (403, "Forbidden: bot was blocked by the user", F.PERMISSION, "403"),
        (403, "Forbidden: bot was kicked from the supergroup chat", F.PERMISSION, "403"),
        (400, "Bad Request: chat not found", F.NOT_FOUND, "chat_not_found"),
        (400, "Bad Request: PEER_ID_INVALID", F.NOT_FOUND, "chat_not_found"),
        (400, "Bad Request: message thread not found", F.NOT_FOUND, "topic_not_found"),
        (400, "Bad Request: message to edit not found", F.NOT_FOUND, "message_not_found"),
        (400, "Bad Request: message to delete not found", F.NOT_FOUND, "message_not_found"),
        (400, "Bad Request: TOPIC_CLOSED", F.PERMISSION, "topic_closed"),
        (400, "Bad Request: not enough rights to send text messages to the chat", F.PERMISSION, "rights"),
        (400, "Bad Request: message text is empty", F.INVALID_PAYLOAD, "empty"),
        (400, "Bad Request: message is too long", F.INVALID_PAYLOAD, "too_long"),
        (400, "Bad Request: message caption is too long", F.INVALID_PAYLOAD, "too_long"),
        (400, "Bad Request: can't parse entities: Unsupported start tag", F.INVALID_PAYLOAD, "entities"),
        (400, "Bad Request: PHOTO_INVALID_DIMENSIONS", F.INVALID_PAYLOAD, "photo"),
        (400, "Bad Request: wrong file identifier/HTTP URL specified", F.INVALID_PAYLOAD, "link"),
        (400, "Bad Request: failed to get HTTP URL content", F.INVALID_PAYLOAD, "link"),
        (400, "Bad Request: there is no text in the message to edit", F.INVALID_PAYLOAD, "no_text"),
        (400, "Bad Request: message can't be edited", F.INVALID_PAYLOAD, "not_editable"),
        (400, "Bad Request: message can't be deleted for everyone", F.INVALID_PAYLOAD, "not_deletable"),
        (400, "Bad Request: something of next year", F.INVALID_PAYLOAD, "400"),
        (413, "Request Entity Too Large", F.INVALID_PAYLOAD, "413"),
    ],
)
def test_a_refusal_has_its_class(code: int, description: str, failure: FailureClass, word: str) -> None:
    """CH-1, FAIL-3, FAIL-4, FAIL-5, FAIL-11: by its code, and among the 400s by its words."""
    outcome = parsed(refusal(code, description))
    assert isinstance(outcome, Rejected), repr(outcome)
    assert (outcome.failure, outcome.code, outcome.status) == (failure, word, code)
    assert outcome.proof is Proof.REJECTED and outcome.retry_after_s is None
    assert outcome.detail.startswith(description)


def test_too_many() -> None:
    """FAIL-2: as long as it says, for this conversation alone: the platform does not say which limit it was."""
    outcome = parsed(refusal(429, "Too Many Requests: retry after 3600", retry_after=3600))
    assert isinstance(outcome, Rejected)
    assert (outcome.failure, outcome.retry_after_s, outcome.scope) == (F.RATE_LIMIT, 3600.0, "lane")
    headed = answer(429, {"ok": False, "error_code": 429, "description": "Too Many Requests"}, **{"retry-after": "5"})
    outcome = parsed(headed)
    assert isinstance(outcome, Rejected) and outcome.retry_after_s == 5.0


def test_a_group_that_became_a_supergroup() -> None:
    """CH-1: it is said where to send, in the detail, which is content; the code holds no chat."""
    moved = refusal(400, "Bad Request: group chat was upgraded to a supergroup chat", migrate_to_chat_id=-1009)
    outcome = parsed(moved)
    assert isinstance(outcome, Rejected)
    assert (outcome.failure, outcome.code) == (F.NOT_FOUND, "moved")
    assert "supergroup -1009: send there" in outcome.detail


def test_an_edit_to_what_stands_already_is_done() -> None:
    """CH-1: the same words twice are there; of a send the same answer is a refusal."""
    same = refusal(400, "Bad Request: message is not modified: specified new message content is exactly the same")
    assert parsed(same, "edit") == Accepted("17", status=400)
    assert isinstance(parsed(same), Rejected)


@pytest.mark.parametrize(
    "found",
    [
        refusal(500, "Internal Server Error"),
        refusal(502, "Bad Gateway"),
        answer(500, {"ok": False, "error_code": 400, "description": "Bad Request: chat not found"}),
        answer(404, b"not found"),
        answer(403, b"<html>403 Forbidden</html>"),
        answer(200, b"<html>welcome</html>"),
        answer(200, {"ok": True, "result": "17"}),
        answer(200, {"ok": True, "result": []}),
        answer(200, {"ok": "true", "result": SENT}),
        answer(200, {"ok": False}),
        answer(400, {"ok": False, "error_code": 400}),
        answer(400, {"ok": False, "error_code": True, "description": "chat not found"}),
        answer(400, {"ok": False, "error_code": "400", "description": "chat not found"}),
        answer(400, {"ok": True, "error_code": 400, "description": "chat not found"}),
        answer(420, {"ok": False, "error_code": 420, "description": "FLOOD_WAIT_17"}),
        answer(302, b"", location="https://elsewhere.example/"),
    ],
)
def test_what_proves_nothing(found: Answer) -> None:
    """FAIL-9, FAIL-10, FAIL-11: every 5xx, and whatever is not the platform's own word."""
    assert isinstance(parsed(found), Unknown)


def test_a_success_without_its_number_is_no_receipt() -> None:
    """CAP-5: the core takes it for unknown."""
    for id in (None, "17", True, 0, -1, 2**60, 1.5):
        assert parsed(accepted({**SENT, "message_id": id})) == Accepted(None, status=200, sent_at=1_700_000_000_000)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
NAMED = st.fixed_dictionaries(
    {},
    optional={
        "ok": JSON,
        "result": JSON | st.fixed_dictionaries({}, optional={"message_id": JSON, "date": JSON}),
        "error_code": JSON | st.sampled_from([400, 401, 403, 404, 409, 429, 500]),
        "description": JSON,
        "parameters": JSON | st.fixed_dictionaries({}, optional={"retry_after": JSON, "migrate_to_chat_id": JSON}),
    },
)


@given(
    status=st.sampled_from([200, 201, 302, 400, 401, 404, 429, 500, 502]), body=NAMED | JSON, raw=st.binary(max_size=20)
)
def test_no_answer_is_read_wrongly(status: int, body: Any, raw: bytes) -> None:
    """FAIL-10: whatever comes back is one of the three, a receipt only of a true ok, a refusal only of a false one."""
    for found in (answer(status, json.dumps(body).encode()), answer(status, raw)):
        for action in ("send", "edit", "delete"):
            outcome = parsed(found, action)
            said = found.json() or {}
            if isinstance(outcome, Accepted):
                assert (status, said.get("ok")) == (200, True) or "not modified" in str(said.get("description"))
            elif isinstance(outcome, Rejected):
                assert said["ok"] is False and status < 500
        polled = offline().parse_poll(None, found)
        assert not isinstance(polled, Polled) or (status, said.get("ok")) == (200, True)
