"""What an answer of the Bot API means: a receipt, a refusal in its class, or nothing that can be relied on.

A refusal counts only where it is Telegram's own: JSON with `ok` false, an `error_code` and a `description`. A bare
status, a page of a proxy and every 5xx prove nothing. The wording of a description decides only between kinds of
refusal, never whether there was one.

Source: https://core.telegram.org/bots/api#making-requests and #responseparameters; the descriptions are those that
Telegram's own Bot API server gives (github.com/tdlib/telegram-bot-api).
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ..ledger.limits import ERROR_TEXT_MAX_CHARS
from ..ledger.message import RenderedUnit
from ..ledger.outcome import Accepted, FailureClass, Outcome, Rejected, Unknown
from .exchange import Answer, retry_after_s, without_class
from .surface import SendContext

SAME: Final = "message is not modified"
MOVED: Final = "migrate_to_chat_id"
ID_MAX: Final = 2**53
"""Numbers of Telegram have at most 52 significant bits, as documented."""

_CLASSES: Final = {
    400: FailureClass.INVALID_PAYLOAD,
    401: FailureClass.AUTH,
    403: FailureClass.PERMISSION,
    404: FailureClass.INVALID_PAYLOAD,
    409: FailureClass.CONFLICT,
    413: FailureClass.INVALID_PAYLOAD,
    429: FailureClass.RATE_LIMIT,
}
"""By `error_code`, where no description says more. What does not stand here is unknown."""

_KNOWN: Final[tuple[tuple[int, str, FailureClass, str], ...]] = (
    (400, "chat not found", FailureClass.NOT_FOUND, "chat_not_found"),
    (400, "user not found", FailureClass.NOT_FOUND, "chat_not_found"),
    (400, "peer_id_invalid", FailureClass.NOT_FOUND, "chat_not_found"),
    (400, "message to edit not found", FailureClass.NOT_FOUND, "message_not_found"),
    (400, "message to delete not found", FailureClass.NOT_FOUND, "message_not_found"),
    (400, "message_id_invalid", FailureClass.NOT_FOUND, "message_not_found"),
    (400, "message to be replied not found", FailureClass.NOT_FOUND, "reply_not_found"),
    (400, "message thread not found", FailureClass.NOT_FOUND, "topic_not_found"),
    (400, "topic_deleted", FailureClass.NOT_FOUND, "topic_not_found"),
    (400, "topic_closed", FailureClass.PERMISSION, "topic_closed"),
    (400, "not enough rights", FailureClass.PERMISSION, "rights"),
    (400, "need administrator rights", FailureClass.PERMISSION, "rights"),
    (400, "have no rights", FailureClass.PERMISSION, "rights"),
    (400, "chat_write_forbidden", FailureClass.PERMISSION, "rights"),
    (400, "chat_admin_required", FailureClass.PERMISSION, "rights"),
    (400, "can't parse entities", FailureClass.INVALID_PAYLOAD, "entities"),
    (400, "can't parse message text", FailureClass.INVALID_PAYLOAD, "entities"),
    (400, "entity_", FailureClass.INVALID_PAYLOAD, "entities"),
    (400, "entities_too_long", FailureClass.INVALID_PAYLOAD, "entities"),
    (400, "photo_", FailureClass.INVALID_PAYLOAD, "photo"),
    (400, "image_process_failed", FailureClass.INVALID_PAYLOAD, "photo"),
    (400, "wrong file identifier/http url specified", FailureClass.INVALID_PAYLOAD, "link"),
    (400, "failed to get http url content", FailureClass.INVALID_PAYLOAD, "link"),
    (400, "wrong type of the web page content", FailureClass.INVALID_PAYLOAD, "link"),
    (400, "webpage_", FailureClass.INVALID_PAYLOAD, "link"),
    (400, "there is no text in the message to edit", FailureClass.INVALID_PAYLOAD, "no_text"),
    (400, "too long", FailureClass.INVALID_PAYLOAD, "too_long"),
    (400, "message text is empty", FailureClass.INVALID_PAYLOAD, "empty"),
    (400, "can't be edited", FailureClass.INVALID_PAYLOAD, "not_editable"),
    (400, "can't be deleted", FailureClass.INVALID_PAYLOAD, "not_deletable"),
    (409, "webhook is active", FailureClass.CONFLICT, "webhook_set"),
    (409, "terminated by other getupdates", FailureClass.CONFLICT, "second_poller"),
)
"""Code, what the description holds (in lower case), class, and our word for it. The first that fits counts."""

_WAYS_OUT: Final = {
    "bad_token": "the token is not of a bot here: check it, and the address of the server",
    "webhook_set": "this bot delivers to a webhook: take it away (deleteWebhook), or receive by webhook",
    "second_poller": "somebody else polls with this token: let one process of this bot poll",
}


def parse(unit: RenderedUnit, context: SendContext, answer: Answer) -> Outcome:
    """What came of one call. An edit to what stands already is done."""
    said = answer.json()
    if said is None:
        return without_class(answer)
    if answer.status == 200 and said.get("ok") is True:
        return _accepted(context, said.get("result"), answer)
    refused = refusal(answer)
    same = isinstance(refused, Rejected) and refused.status == 400 and SAME in refused.detail.lower()
    if same and context.action == "edit":
        return Accepted(context.of_platform_id, status=answer.status)
    return refused


def refusal(answer: Answer) -> Rejected | Unknown:
    """Why Telegram did not do it, or that nobody can say."""
    said = answer.json()
    code, text = (None, None) if said is None else (said.get("error_code"), said.get("description"))
    if said is None or said.get("ok") is not False or isinstance(code, bool) or not isinstance(code, int):
        return without_class(answer)
    if not isinstance(text, str) or code not in _CLASSES or answer.status >= 500:
        return without_class(answer)
    failure, word = _class(code, text.lower())
    parameters = said.get("parameters")
    moved = msgspec.convert(parameters, dict[str, Any]).get(MOVED) if isinstance(parameters, dict) else None
    if code == 400 and isinstance(moved, int) and not isinstance(moved, bool):
        failure, word = FailureClass.NOT_FOUND, "moved"
        text = f"{text} (the group has become the supergroup {moved}: send there)"
    if word in _WAYS_OUT:
        text = f"{text} ({_WAYS_OUT[word]})"
    return Rejected(
        failure,
        text[:ERROR_TEXT_MAX_CHARS],
        code=word,
        status=code,
        retry_after_s=retry_after_s(answer) if failure is FailureClass.RATE_LIMIT else None,
    )


def _class(code: int, text: str) -> tuple[FailureClass, str]:
    if code == 401 or (code == 404 and text == "not found"):
        return FailureClass.AUTH, "bad_token"
    found = ((failure, word) for status, part, failure, word in _KNOWN if status == code and part in text)
    return next(found, (_CLASSES[code], str(code)))


def _accepted(context: SendContext, result: object, answer: Answer) -> Outcome:
    if context.action == "delete":
        return Accepted(context.of_platform_id, status=200) if result is True else without_class(answer)
    if context.action == "edit" and result is True:
        return Accepted(context.of_platform_id, status=200)
    if not isinstance(result, dict):
        return without_class(answer)
    fields = msgspec.convert(result, dict[str, Any])
    id, date = fields.get("message_id"), fields.get("date")
    known = isinstance(id, int) and not isinstance(id, bool) and 0 < id < ID_MAX
    sent_at = None
    if isinstance(date, int) and not isinstance(date, bool) and 0 < date < ID_MAX // 1000:
        sent_at = date * 1000
    return Accepted(str(id) if known else None, status=200, sent_at=sent_at)
