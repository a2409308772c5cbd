"""The tag in the content of a Matrix event that says which program wrote it, and what of. Pure.

`by` is the user that wrote the tag. A client that forwards a message takes the keys of its content along, so that only
a tag whose `by` is the event's own sender says anything of that event.

Source: https://spec.matrix.org/latest/client-server-api/, custom keys of `m.room.message`; tried on Synapse 1.163.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from ..ledger.origin import Origin, decode

TAG: Final = "org.msgledger.origin"


def encoded(origin: Origin, user_id: str) -> dict[str, Any]:
    """The tag of a message of that user. It is there also where there is no origin to tell: a program wrote it."""
    return {**(origin.tag() or {}), "by": user_id}


def tagged(content: dict[str, Any], tag: dict[str, Any]) -> dict[str, Any]:
    """The content of an event with its tag; of an edit, also where the homeserver takes the new content from."""
    new = content.get("m.new_content")
    whole = {**content, TAG: tag}
    return whole if new is None else whole | {"m.new_content": {**new, TAG: tag}}


def decoded(event: Mapping[str, Any]) -> Origin | None:
    """The origin that the event's own sender states. What came along from another event is kept opaque."""
    tag = _tag(event)
    if tag is None:
        return None
    if tag.get("by") != event.get("sender"):
        return Origin(opaque=tag)
    said = {name: value for name, value in tag.items() if name != "by"}
    return decode(said) if said else None


def by_a_program(event: Mapping[str, Any]) -> bool:
    """Whether its sender says that a program wrote it."""
    tag = _tag(event)
    return tag is not None and tag.get("by") is not None and tag.get("by") == event.get("sender")


def _tag(event: Mapping[str, Any]) -> dict[str, Any] | None:
    content: object = event.get("content")
    tag = cast("dict[str, object]", content).get(TAG) if isinstance(content, dict) else None
    return cast("dict[str, Any]", tag) if isinstance(tag, dict) else None
