"""The Telegram channel on a Bot API server that is not ours (Crabline's): the contract, and what a chat shows. Where
the server does otherwise than Telegram, `tests/counterparts/differences.py` says how, and docs/telegram.md says it to
readers.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgledger.adapters.surface import Channel
from msgledger.adapters.telegram import TelegramChannel
from msgledger.ledger.errors import InvalidConfig
from msgledger.ledger.message import Attachment, Message, RenderedUnit, Target
from msgledger.ledger.outcome import Accepted, Cause, FailureClass, Outcome, Rejected, Unknown

from ..counterparts.crabline_telegram import CrablineTelegram
from ..counterparts.differences import TELEGRAM
from ..counterparts.proxy import Fate, Proxy, Rule
from .contract import ChannelContract, context, deliver, identity, opened, sent
from .contract import accepted as receipt
from .telegram_kit import TelegramBench, channel_of, shown

pytest_plugins = ("tests.counterparts.fixtures",)
pytestmark = pytest.mark.crabline

DOCS = Path(__file__).resolve().parents[2] / "docs" / "telegram.md"


@pytest.fixture
def bench(bot_api: CrablineTelegram, bot_proxy: Proxy) -> TelegramBench:
    return TelegramBench(bot_api, bot_proxy)


class TestContract(ChannelContract):
    """CH-1, CAP-6: the contract of every channel."""


def test_the_differences_are_written_down() -> None:
    """CH-1, CAP-6: each thing that the server does otherwise stands in the document, in the same words."""
    text = " ".join(DOCS.read_text().split())
    assert [reason for reason in TELEGRAM.values() if reason not in text] == []


def test_the_limit_counts_as_the_server_counts(bench: TelegramBench) -> None:
    """CAP-1: 4096 UTF-16 units are one message, also where each character takes two; one more is another message."""
    channel, target = bench.channel(), bench.target()
    exact = "🙂" * 2048
    (outcome,) = sent(channel, Message.text(exact, to=target))
    receipt(outcome)
    assert len(sent(channel, Message.text(exact + "x", to=target))) == 2
    assert [len(seen.text.encode("utf-16-le")) // 2 <= 4096 for seen in bench.visible(target)] == [True] * 3
    assert "".join(seen.text for seen in bench.visible(target)) == exact + exact + "x"


def test_marks_do_not_count(bench: TelegramBench) -> None:
    """CAP-1: what people read is counted, and not the markup around it."""
    target = bench.target()
    html = "<b>" + "&amp;" * 4096 + "</b>"
    (outcome,) = sent(bench.channel(), Message.text(html, to=target, format="html"))
    receipt(outcome)
    assert bench.visible(target)[0].text == "&" * 4096


def test_a_caption_of_exactly_its_limit(bench: TelegramBench, tmp_path: Path) -> None:
    """CAP-1, CAP-2: 1024 units stand under the file; a longer text stands before it."""
    path = tmp_path / "plan.pdf"
    path.write_bytes(b"%PDF-1.7 " + bytes(range(256)) * 5000)
    for text, count in (("🙂" * 512, 1), ("🙂" * 512 + "x", 2)):
        file = Attachment("plan.pdf", media_type="application/pdf", size=path.stat().st_size, digest="ab" * 32)
        outcomes = sent(bench.channel(), Message.text(text, to=bench.target(), attachments=(file,)), media=path)
        assert len([receipt(one) for one in outcomes]) == count
    first, *rest = [one for one in bench.proxy.passed if one.path.endswith("/sendDocument")]
    assert len(rest) == 1 and path.read_bytes() in first.body
    assert [seen.text for seen in bench.visible(bench.target())] == ["🙂" * 512, "🙂" * 512 + "x", ""]


def test_each_kind_of_file_is_one_call(bench: TelegramBench, tmp_path: Path) -> None:
    """CH-1, CAP-2: a photo, a film, a song, a moving picture and a file, each uploaded by the request that shows it."""
    path = tmp_path / "content"
    path.write_bytes(b"content of a file")
    types = {
        "image/png": "Photo",
        "video/mp4": "Video",
        "audio/mpeg": "Audio",
        "image/gif": "Animation",
        "a/b": "Document",
    }
    for media_type in types:
        kind = media_type.partition("/")[0]
        file = Attachment(
            'na"me\n.x',
            kind if kind in ("image", "video", "audio") else "file",  # type: ignore[arg-type]
            media_type=media_type,
            size=17,
            digest="cd" * 32,
        )
        (outcome,) = sent(bench.channel(), Message(bench.target(), attachments=(file,)), media=path)
        receipt(outcome)
    calls = [entry for entry in bench.server.recorded() if str(entry["body"].get("chat_id")) == bench.chat]
    assert [call["path"].rpartition("/send")[2] for call in calls if "/send" in call["path"]] == list(types.values())
    assert all(name in call["body"].values() for call in calls[-5:] for name in ['na"me\n.x'])


def test_silence_proves_nothing(bench: TelegramBench) -> None:
    """FAIL-9, FAIL-11: lost on the way there or back it looks the same, and there is one message or none."""
    for fate, count in ((Fate.LOSE_ANSWER, 1), (Fate.LOSE_REQUEST, 1)):
        bench.proxy.set(Rule(fate, method="POST", path="/sendMessage"))
        (outcome,) = sent(bench.channel(), Message.text("once", to=bench.target()))
        assert isinstance(outcome, Unknown) and outcome.cause is Cause.RESET
        assert len(bench.visible(bench.target())) == count


def test_what_the_server_refuses(bench: TelegramBench) -> None:
    """FAIL-3: its own refusal of a text that is too long, which our limit never lets out."""

    async def longer(channel: Channel) -> Outcome:
        return await deliver(channel, RenderedUnit(0, text="x" * 4097), context(bench.target()))

    outcome = opened(bench.channel(), longer)
    assert isinstance(outcome, Rejected)
    assert (outcome.failure, outcome.code, outcome.status) == (FailureClass.INVALID_PAYLOAD, "too_long", 400)
    assert bench.visible(bench.target()) == []


def test_a_wrong_token(bot_api: CrablineTelegram) -> None:
    """SC-04: nothing is sent where the server does not know the bot; the channel is not ready."""
    channel = TelegramChannel("424242:AAF-another_secret_0123456789", base_url=bot_api.url)

    async def ready(channel: Channel) -> bool:
        return channel.ready

    assert opened(channel, ready) is False


def test_the_server_of_another_bot(bot_api: CrablineTelegram) -> None:
    """CH-1: a username that is not this bot's is refused when it opens; without one it is learned."""
    learned = channel_of(bot_api)

    async def username(channel: Channel) -> str | None:
        return learned._telegram.username

    assert opened(learned, username) == "crabline_bot"
    with pytest.raises(InvalidConfig, match="is of @crabline_bot"):
        opened(channel_of(bot_api, username="other_bot"), username)


def test_a_reply_to_what_is_gone_is_sent(bench: TelegramBench) -> None:
    """CAP-3: the call allows it, so that an answer is not lost with the message that it answers."""
    (outcome,) = sent(bench.channel(), Message.text("still", to=bench.target()), reply_to="99999")
    assert identity(receipt(outcome)) == shown(bench.proxy, bench.chat)[-1].id
    assert b'"allow_sending_without_reply":true' in bench.proxy.passed[-1].body


def test_the_general_topic_has_no_number(bench: TelegramBench) -> None:
    """CAP-3: in a group topic 1 is the one that is meant where none is named."""
    target = Target.group("telegram", "-100" + bench.chat[:10], thread="1")
    (outcome,) = sent(bench.channel(), Message.text("to all", to=target))
    assert isinstance(outcome, Accepted)
    assert b"message_thread_id" not in bench.proxy.passed[-1].body


def test_the_loop_is_left_as_it_was(bench: TelegramBench) -> None:
    """CH-1: closing leaves no task behind."""

    async def run() -> set[object]:
        channel = channel_of(bench.server)
        await channel.open()
        await channel.close()
        return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}

    assert asyncio.run(run()) == set()
