"""Input that cannot be sent: one clear error each, nothing recorded or sent; channels that cannot be worked with."""

from __future__ import annotations

from typing import Any

import pytest
from msgledger import Attachment, InvalidMessage, LedgerError, Message, Reply, Status, Target, TextLimit, UnknownChannel
from msgledger.adapters.surface import Capabilities
from msgledger.ledger.errors import InvalidConfig, SurfaceMismatch

from .kit import Bench, text, to

SURROGATE = "broken \ud800 text"
BAD: dict[str, tuple[Any, dict[str, Any]]] = {
    "unknown channel": (text("x", channel="nowhere"), {}),
    "unknown account": (text("x", account="nobody"), {}),
    "target without id": (Message.text("x", to=Target.group("plat", "  ")), {}),
    "target id too long": (text("x", "r" * 600), {}),
    "empty text": (text("   "), {}),
    "too long": (text("x" * 201), {}),
    "NUL": (text("a\x00b"), {}),
    "lone surrogate": (text(SURROGATE), {}),
    "5 MB": (text("y" * 5_000_000), {}),
    "empty key": (text("x"), {"key": ""}),
    "key too long": (text("x"), {"key": "k" * 600}),
    "surrogate in the key": (text("x"), {"key": SURROGATE}),
    "surrogate in the target": (text("x", SURROGATE), {}),
    "surrogate in the label": (text("x"), {}),
    "surrogate in the thread": (Message.text("x", to=to(thread=SURROGATE)), {}),
    "surrogate in the reply": (text("x", relation=Reply(reply_to=SURROGATE)), {}),
    "surrogate in the session": (text("x"), {"session": SURROGATE}),
    "surrogate in the run": (text("x"), {"producer": "p", "run": SURROGATE}),
    "surrogate in the traceparent": (text("x"), {"traceparent": SURROGATE}),
    "producer alone": (text("x"), {"producer": "p"}),
    "no attempts": (text("x"), {"max_attempts": 0}),
    "no age": (text("x"), {"max_age_s": 0}),
    "too many attachments": (text("x", attachments=tuple(Attachment(f"f{n}") for n in range(21))), {}),
}
BAD["surrogate in the label"] = (Message.text("x", to=to(label=SURROGATE)), {})


@pytest.mark.parametrize("name", sorted(BAD))
def test_bad_input_is_one_clear_error_and_leaves_nothing(bench: Bench, name: str) -> None:
    """OB-17, CAP-1, DUR-1: before anything is written or sent; the error is short and shows no secret of ours."""
    message, options = BAD[name]

    async def main() -> None:
        async with bench.gateway() as gateway:
            with pytest.raises(InvalidMessage) as caught:
                await gateway.send(message, **options)
            assert len(str(caught.value)) < 400
            if name.startswith("unknown"):
                assert isinstance(caught.value, UnknownChannel)
            assert bench.types_of_intents() == []
            assert (await gateway.send(text("the next one"))).status is Status.SENT
        assert bench.platform.texts == ["the next one"]

    bench.run(main())


def test_something_that_json_cannot_hold_is_refused_whole(bench: Bench) -> None:
    """OB-17: no half of a record ever stands."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            message = Message(target=to(), body=text("x").body, raw={"object": object()})
            with pytest.raises(LedgerError):
                await gateway.send(message)
            assert bench.types_of_intents() == []

    bench.run(main())


def test_a_large_text_that_fits_is_stored_whole(bench: Bench) -> None:
    """OB-17: a megabyte of text, with characters beyond the first plane."""

    async def main() -> None:
        body = "🙂" * 250_000
        limit = TextLimit(max=2_000_000, unit="codepoints")
        async with bench.gateway(bench.platform.channel(text=limit)) as gateway:
            sent = await gateway.send(text(body))
            assert sent.status is Status.SENT
            message = (await gateway.intent(sent.intent)).message
            assert message is not None and message.body is not None and message.body.text == body
        assert bench.platform.texts == [body]

    bench.run(main())


@pytest.mark.parametrize(("unit", "fits"), [("utf16", 50), ("codepoints", 100), ("bytes", 25)])
def test_the_limit_counts_in_the_channels_own_unit(bench: Bench, unit: Any, fits: int) -> None:
    """CAP-1: at the limit it is sent, one character more is refused before any I/O, or split where that is allowed."""

    async def main() -> None:
        strict = bench.platform.channel(text=TextLimit(100, unit))
        async with bench.gateway(strict) as gateway:
            assert (await gateway.send(text("🙂" * fits))).status is Status.SENT
            with pytest.raises(InvalidMessage, match=unit):
                await gateway.send(text("🙂" * (fits + 1)))
        async with bench.gateway(bench.platform.channel(text=TextLimit(100, unit, chunking=True))) as gateway:
            assert (await gateway.send(text("🙂" * (fits + 1)))).status is Status.SENT
        assert len(bench.platform.texts) == 3
        assert "".join(bench.platform.texts[1:]) == "🙂" * (fits + 1)

    bench.run(main())


def test_an_attachment_that_cannot_go_along_is_named(bench: Bench) -> None:
    """CAP-2: in the text; never dropped in silence."""
    file = Attachment("plan.pdf", url="https://files.example/plan.pdf")

    async def main() -> None:
        async with bench.gateway() as gateway:
            await gateway.send(text("see the plan", attachments=(file,)))
        async with bench.gateway(bench.platform.channel(attachments="remote_url")) as gateway:
            await gateway.send(text("see the plan", attachments=(file,)))
        noted, alone, media = bench.platform.requests
        assert "plan.pdf" in noted.text and "https://files.example/plan.pdf" in noted.text
        assert (alone.text, media.unit.media) == ("see the plan", file)

    bench.run(main())


def test_a_reply_on_a_channel_without_threads_is_still_sent(bench: Bench) -> None:
    """CAP-3: in the lesser form; the relation stays recorded as it was."""

    async def main() -> None:
        async with bench.gateway(bench.platform.channel(threads=False)) as gateway:
            sent = await gateway.send(text("an answer", relation=Reply(reply_to="quoted-77", thread="thread-9")))
            assert sent.status is Status.SENT
            assert bench.last(sent.intent, "IntentRecorded")["relation"] == "reply"

    bench.run(main())


def test_a_channel_of_another_surface_is_refused(bench: Bench) -> None:
    """ADP-5: the error names the channel and both versions, and no file is made."""
    channel = bench.platform.channel()
    channel.surface = 2
    with pytest.raises(SurfaceMismatch, match=r"'plat'.*2.*1"):
        bench.gateway(channel)
    assert not bench.path.exists()


def test_a_channel_that_is_not_complete_is_refused(bench: Bench) -> None:
    """ADP-1, ADP-2: what the surface names is needed, the rest is optional."""

    class Half:
        name, account, surface, version = "plat", "default", 1, "1"
        capabilities = Capabilities()

    with pytest.raises(InvalidConfig, match="complete"):
        bench.gateway(Half())
    with pytest.raises(InvalidConfig, match="twice"):
        bench.gateway(bench.platform.channel(), bench.platform.channel())
