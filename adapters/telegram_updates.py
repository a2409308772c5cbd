"""What comes in from Telegram: an update of the Bot API in our words, or what it is that starts no turn.

Pure. An update of another form raises `ValueError`; nothing of its text is echoed. Names, usernames and titles are for
people and never part of an identity: chats and senders are known by their numbers. Files are named, and not fetched.

Source: https://core.telegram.org/bots/api#update, #message, #messageentity. Entities count in UTF-16 units.
"""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple, TypeGuard

from ..ledger.message import NO_RELATION, Attachment, Body, MediaKind, Message, Origin, Reply, Target
from ..ledger.source import ChatKind, SessionSource
from .receiving import Event, Ignored, Incoming

MESSAGES: Final = ("message", "channel_post")
ALLOWED: Final = (*MESSAGES, "callback_query", "edited_message", "edited_channel_post", "my_chat_member")
"""The kinds of update that are asked for."""
ID_MAX: Final = 2**53
"""Numbers of Telegram have at most 52 significant bits, as documented."""
NAME_MAX_CHARS: Final = 200

_KINDS: Final[dict[str, ChatKind]] = {
    "private": "dm",
    "group": "group",
    "supergroup": "group",
    "channel": "channel",
}
_TARGETS: Final[dict[ChatKind, Literal["direct", "group", "channel"]]] = {
    "dm": "direct",
    "group": "group",
    "channel": "channel",
}
_OTHER: Final = {
    "edited_message": "edit",
    "edited_channel_post": "edit",
    "my_chat_member": "our own membership",
    "message_reaction": "reaction",
    "message_reaction_count": "reaction",
    "inline_query": "inline query",
    "poll": "poll",
    "poll_answer": "poll answer",
    "chat_member": "membership",
    "chat_join_request": "request to join",
}
"""Updates that start no turn, and what they are called."""
_SERVICE: Final = (
    *("new_chat_members", "left_chat_member", "new_chat_title", "new_chat_photo", "delete_chat_photo"),
    *("group_chat_created", "supergroup_chat_created", "channel_chat_created", "message_auto_delete_timer_changed"),
    *("migrate_to_chat_id", "migrate_from_chat_id", "pinned_message", "successful_payment", "users_shared"),
    *("chat_shared", "write_access_allowed", "proximity_alert_triggered", "boost_added", "chat_background_set"),
    *("forum_topic_created", "forum_topic_edited", "forum_topic_closed", "forum_topic_reopened"),
    *("general_forum_topic_hidden", "general_forum_topic_unhidden", "giveaway_created", "giveaway"),
    *("giveaway_winners", "giveaway_completed", "video_chat_scheduled", "video_chat_started", "video_chat_ended"),
    *("video_chat_participants_invited", "web_app_data", "contact", "location", "venue", "poll", "dice", "game"),
    *("invoice", "story", "paid_media", "checklist"),
)
"""What a message without a text or a file may be."""
_FILES: Final[dict[str, tuple[MediaKind, str]]] = {
    "animation": ("video", "animation.mp4"),
    "document": ("file", "document"),
    "video": ("video", "video.mp4"),
    "audio": ("audio", "audio"),
    "voice": ("voice", "voice.ogg"),
    "video_note": ("video", "video_note.mp4"),
    "sticker": ("image", "sticker.webp"),
}
"""The kind of a file, and its name where it has none."""


def dedupe_key(event: Event) -> str:
    """The update's number, which is repeated until it is confirmed."""
    return str(_id(event.get("update_id"), "update_id", least=0))


def normalize(event: Event, *, channel: str, bot: int, username: str | None) -> Incoming | Ignored:
    """`bot` and `username` are our own, as far as they are known."""
    for kind in MESSAGES:
        if (said := _object(event.get(kind))) is not None:
            return _message(said, channel, bot, username)
        if kind in event:
            raise ValueError(f"{kind} is no object")
    if "callback_query" in event:
        pressed = _object(event["callback_query"])
        if pressed is None:
            raise ValueError("callback_query is no object")
        return _pressed(pressed, channel)
    return Ignored(next((what for kind, what in _OTHER.items() if kind in event), "another kind of update"))


def _message(said: Event, channel: str, bot: int, username: str | None) -> Incoming | Ignored:
    id = str(_id(said.get("message_id"), "message_id"))
    where = _place(said)
    text = _text(said, "text", "caption")
    files, kept = _files(said)
    if text is None and not files:
        return Ignored(next((name for name in _SERVICE if name in said), "a message without text"))
    target = _target(channel, where)
    sender, name, is_bot, own = _sender(said, bot)
    source = SessionSource(
        "telegram",
        where.kind,
        chat=where.chat,
        thread=where.thread,
        sender=sender,
        chat_name=where.title,
        sender_name=name,
        is_bot=is_bot,
        message_id=id,
    )
    kept |= _facts(said)
    answers = _answered(said)
    relation = NO_RELATION if answers is None else Reply(reply_to=answers, thread=where.thread, quote=_quote(said))
    message = Message(
        target,
        Body(text or ""),
        attachments=files,
        relation=relation,
        origin=Origin("external_bot" if is_bot else "platform" if sender is None else "user"),
        direction="inbound",
        id=id,
        sender=sender,
        timestamp=_ms(said.get("date")),
        raw={"telegram": kept} if kept else None,
    )
    addressed = where.kind == "dm" or _speaks_to_us(said, text or "", bot, username)
    return Incoming(message=message, source=source, own=own, addressed=addressed)


def _pressed(pressed: Event, channel: str) -> Incoming | Ignored:
    """A button of ours: its data is the text, and the message that it stands under is what is answered."""
    data, under = pressed.get("data"), _object(pressed.get("message"))
    if not isinstance(data, str) or not data:
        return Ignored("a button without data")
    if under is None:
        return Ignored("a button of an inline message")
    id, where = str(_id(under.get("message_id"), "message_id")), _place(under)
    who = _object(pressed.get("from"))
    if who is None:
        raise ValueError("callback_query.from is no object")
    sender, is_bot = str(_id(who.get("id"), "from.id")), who.get("is_bot") is True
    query = _text(pressed, "id")
    message = Message(
        _target(channel, where),
        Body(data),
        relation=Reply(reply_to=id, thread=where.thread),
        origin=Origin("external_bot" if is_bot else "user"),
        direction="inbound",
        id=id,
        sender=sender,
        raw={"telegram": {"callback_query_id": query}} if query else None,
    )
    source = SessionSource(
        "telegram",
        where.kind,
        chat=where.chat,
        thread=where.thread,
        sender=sender,
        chat_name=where.title,
        sender_name=_full_name(who),
        is_bot=is_bot,
        message_id=id,
    )
    return Incoming(message=message, source=source)


# ---- where and who


class _Place(NamedTuple):
    """`thread` is a topic. A number that only groups the answers to one message is none."""

    chat: str
    kind: ChatKind
    title: str | None
    thread: str | None


def _place(said: Event) -> _Place:
    chat = _object(said.get("chat"))
    if chat is None:
        raise ValueError("chat is no object")
    type_ = chat.get("type")
    kind = _KINDS.get(type_) if isinstance(type_, str) else None
    if kind is None:
        raise ValueError("chat.type is none that is known")
    thread = None
    if said.get("is_topic_message") is True and said.get("message_thread_id") is not None:
        thread = str(_id(said["message_thread_id"], "message_thread_id"))
    title = _text(chat, "title") or _full_name(chat)
    return _Place(str(_id(chat.get("id"), "chat.id", least=-ID_MAX)), kind, title and title[:NAME_MAX_CHARS], thread)


def _target(channel: str, where: _Place) -> Target:
    return Target(_TARGETS[where.kind], channel, where.chat, thread=where.thread)


def _sender(said: Event, bot: int) -> tuple[str | None, str | None, bool, bool]:
    """Who wrote it: the number, the name, whether it is a bot, and whether it is us.

    A message in the name of a chat is that chat's: an anonymous administrator is no bot, though the platform says so.
    """
    chat, who = _object(said.get("sender_chat")), _object(said.get("from"))
    if chat is not None:
        name = _text(chat, "title") or _full_name(chat)
        return str(_id(chat.get("id"), "sender_chat.id", least=-ID_MAX)), name and name[:NAME_MAX_CHARS], False, False
    if who is None:
        return None, None, False, False
    id = _id(who.get("id"), "from.id")
    return str(id), _full_name(who), who.get("is_bot") is True, id == bot


def _full_name(who: Event) -> str | None:
    names = [name for key in ("first_name", "last_name") if (name := _text(who, key))]
    return " ".join(names)[:NAME_MAX_CHARS] or None


def _answered(said: Event) -> str | None:
    """The message that it answers. In a topic the platform names the topic's own beginning, which answers nothing."""
    answered = _object(said.get("reply_to_message"))
    if answered is None or "forum_topic_created" in answered:
        return None
    return str(_id(answered.get("message_id"), "reply_to_message.message_id", least=0))


def _quote(said: Event) -> str | None:
    quote = _object(said.get("quote"))
    return None if quote is None else _text(quote, "text")


def _speaks_to_us(said: Event, text: str, bot: int, username: str | None) -> bool:
    answered = _object(said.get("reply_to_message"))
    if answered is not None and "forum_topic_created" not in answered:
        writer = _object(answered.get("from"))
        if writer is not None and writer.get("id") == bot:
            return True
    ours = None if username is None else f"@{username}".lower()
    wide = text.encode("utf-16-le", "surrogatepass")
    for entity in _list(said.get("entities" if isinstance(said.get("text"), str) else "caption_entities")):
        part = _part(wide, entity)
        match entity.get("type"):
            case "mention" if part.lower() == ours:
                return True
            case "text_mention" if (_object(entity.get("user")) or {}).get("id") == bot:
                return True
            case "bot_command" if part.startswith("/"):
                _, at, whom = part.partition("@")
                if not at or f"@{whom}".lower() == ours:
                    return True
            case _:
                pass
    return False


def _part(wide: bytes, entity: Event) -> str:
    start, length = entity.get("offset"), entity.get("length")
    if not _is_int(start) or not _is_int(length) or not 0 <= start <= len(wide) or not 0 < length <= len(wide):
        return ""
    return wide[start * 2 : (start + length) * 2].decode("utf-16-le", "replace")


# ---- files and the rest


def _files(said: Event) -> tuple[tuple[Attachment, ...], dict[str, Any]]:
    """The files by their names, and the ids by which the platform gives them out."""
    found: list[Attachment] = []
    ids: list[dict[str, str]] = []
    sizes = _list(said.get("photo"))
    if sizes:
        largest = max(sizes, key=lambda one: one["file_size"] if _is_int(one.get("file_size")) else 0)
        found.append(Attachment("photo.jpg", "image", media_type="image/jpeg", size=_size(largest)))
        ids.append(_file_id(largest))
    for key, (kind, name) in _FILES.items():
        file = _object(said.get(key))
        if file is None or (key == "document" and "animation" in said):
            continue
        called = (_text(file, "file_name") or name)[:NAME_MAX_CHARS]
        found.append(Attachment(called, kind, media_type=_text(file, "mime_type"), size=_size(file)))
        ids.append(_file_id(file))
    return tuple(found), {"files": ids} if ids else {}


def _file_id(file: Event) -> dict[str, str]:
    return {key: value for key in ("file_id", "file_unique_id") if (value := _text(file, key))}


def _size(file: Event) -> int | None:
    size = file.get("file_size")
    return size if _is_int(size) and 0 <= size < ID_MAX else None


def _facts(said: Event) -> dict[str, Any]:
    """What a gateway may want to know beside the words."""
    facts: dict[str, Any] = {}
    if group := _text(said, "media_group_id"):
        facts["media_group_id"] = group
    forwarded = _object(said.get("forward_origin"))
    if forwarded is not None:
        facts["forwarded"] = _text(forwarded, "type") or "unknown"
    if said.get("is_automatic_forward") is True:
        facts["automatic"] = True
    return facts


# ---- values of any form


def _id(value: object, name: str, *, least: int = 1) -> int:
    if not _is_int(value) or not least <= value < ID_MAX:
        raise ValueError(f"{name} is no number of Telegram's")
    return value


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_object(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _object(value: object) -> dict[str, Any] | None:
    return value if _is_object(value) else None


def _is_list(value: object) -> TypeGuard[list[object]]:
    return isinstance(value, list)


def _list(value: object) -> list[dict[str, Any]]:
    """The objects of a list, if it is one."""
    return [one for one in value if _is_object(one)] if _is_list(value) else []


def _text(of: Event, *keys: str) -> str | None:
    """The first text that is not empty."""
    return next((value for key in keys if isinstance(value := of.get(key), str) and value), None)


def _ms(date: object) -> int | None:
    """UTC milliseconds; the platform writes 0 where it cannot say."""
    return date * 1000 if _is_int(date) and 0 < date < ID_MAX // 1000 else None
