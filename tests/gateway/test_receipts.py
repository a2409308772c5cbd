"""Receipts: every id of every part, one primary, tokens, and all of it after a restart; edits and deletes use them."""

from __future__ import annotations

import pytest
from msgledger import Accepted, NotPossible, Receipt, ReceiptPart, Status

from .kit import SHORT, Bench, parts, text, to
from .platform import Request, accept, hang, no_id, raises, reject


async def rich(request: Request) -> Accepted:
    """One unit becomes two messages, with all that a platform may tell."""
    id, _ = request.platform.apply(request)
    part = ReceiptPart(
        0, f"{id}-a", "text", "thread-9", "quoted-77", "edit-token", "delete-token", "https://x.example/1"
    )
    return Accepted(
        f"{id}-a", parts=(part, ReceiptPart(1, f"{id}-b", "card")), sent_at=1_799_999_999_000, raw={"ok": 1}
    )


def test_a_receipt_tells_what_the_platform_told(bench: Bench) -> None:
    """RCP-1, RCP-2, RCP-3, RCP-4, RCP-5, G14: ids, parts in order, tokens, time; the same after a restart."""

    async def main() -> None:
        bench.platform.plan(rich)
        async with bench.gateway() as gateway:
            sent = await gateway.send(text("rich"), key="a-key-of-mine")
        receipt = sent.receipt
        assert receipt is not None
        assert receipt.platform_ids == ("m1-a", "m1-b")
        assert [(part.index, part.kind) for part in receipt.parts] == [(0, "text"), (1, "card")]
        assert receipt.primary_platform_id == "m1-a"
        assert (receipt.parts[0].edit_token, receipt.parts[0].delete_token) == ("edit-token", "delete-token")
        assert (receipt.thread, receipt.reply_to, receipt.sent_at) == ("thread-9", "quoted-77", 1_799_999_999_000)
        async with bench.gateway() as gateway:
            again = await gateway.send(text("rich"), key="a-key-of-mine")
            assert again.receipt == receipt
            assert (again.repeated, again.status) == (True, Status.SENT)
            assert (await again.wait()).receipt == receipt

    bench.run(main())


def test_an_edit_and_a_delete_after_a_restart_find_their_tokens(bench: Bench) -> None:
    """RCP-1, RCP-4: each with its own token, a delete for every part."""

    async def main() -> None:
        bench.platform.plan(rich)
        async with bench.gateway() as gateway:
            sent = await gateway.send(text("rich"))
        async with bench.gateway() as gateway:
            assert (await gateway.edit(sent.intent, text("changed"))).status is Status.SENT
        async with bench.gateway() as gateway:
            assert (await gateway.delete(sent.intent)).status is Status.SENT
        assert bench.platform.log[0] == ("edit", "m1-a", "edit-token", "changed")
        assert [entry[:3] for entry in bench.platform.log[1:]] == [
            ("delete", "m1-a", "delete-token"),
            ("delete", "m1-b", None),
        ]

    bench.run(main())


def test_a_message_in_four_parts_has_one_merged_receipt(bench: Bench) -> None:
    """RCP-2, RCP-3, G14, SC-42: every part of every unit, no id twice, one primary among them."""

    async def main() -> None:
        async with bench.gateway(bench.platform.channel(text=SHORT)) as gateway:
            sent = await gateway.send(text(parts(4)))
            assert sent.receipt is not None
            assert sent.receipt.platform_ids == ("m1", "m2", "m3", "m4")
            assert [part.index for part in sent.receipt.parts] == [0, 1, 2, 3]
            assert sent.receipt.primary_platform_id == "m1"
            for id in sent.receipt.platform_ids:
                assert await gateway.by_platform_id("plat", id) == [sent.intent]

    bench.run(main())


def test_a_channel_without_ids_gives_a_receipt_that_says_so(bench: Bench) -> None:
    """RCP-1, CAP-5, GAP-10: no identity is said outright, and is still a receipt."""

    async def main() -> None:
        bench.platform.plan(no_id)
        async with bench.gateway(bench.platform.channel(receipt="none")) as gateway:
            sent = await gateway.send(text("into the void"))
            assert (sent.status, sent.receipt is not None) == (Status.SENT, True)
            assert sent.receipt is not None
            assert sent.receipt.identity == Receipt.NO_IDENTITY
            assert (sent.receipt.platform_ids, len(sent.receipt.parts)) == ((), 1)
            with pytest.raises(NotPossible, match="without a receipt"):
                await gateway.edit(sent, text("changed"))

    bench.run(main())


def test_wait_gives_the_receipt_that_came_later(bench: Bench) -> None:
    """RCP-5: a durable send never yields nothing on success."""

    async def main() -> None:
        bench.platform.ready = False
        async with bench.gateway() as gateway:
            owed = await gateway.send(text("later"), wait=False)
            assert (owed.status, owed.receipt, owed.retry) == (Status.PENDING, None, "ledger")
            bench.platform.ready = True
            await bench.clock.advance(1)
            later = await owed.wait()
            assert later.receipt is not None and later.receipt.primary_platform_id == "m1"

    bench.run(main())


def test_a_message_is_found_by_platform_id_and_by_target(bench: Bench) -> None:
    """SC-67: in the running gateway and after a restart, with its receipt."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            here = await gateway.send(text("here", "room-of-mine"))
            await gateway.send(text("there", "another-room"))
        async with bench.gateway() as gateway:
            assert await gateway.by_platform_id("plat", "m1") == [here.intent]
            assert await gateway.by_platform_id("plat", "m99") == []
            [row] = await gateway.intents(target=to("room-of-mine"))
            assert (row.id, row.primary_platform_id) == (here.intent, "m1")
            assert await gateway.intents(target=to("nowhere")) == []

    bench.run(main())


@pytest.mark.parametrize("state", ["held", "pending"])
def test_what_was_not_sent_cannot_be_edited(bench: Bench, state: str) -> None:
    """RCP-4: an edit needs the receipt of its object."""

    async def main() -> None:
        bench.platform.plan(hang if state == "held" else raises(ValueError("x")))
        async with bench.gateway(bench.platform.channel(deadline_s=0.05)) as gateway:
            sent = await gateway.send(text("ambiguous"))
            with pytest.raises(NotPossible, match="without a receipt"):
                await gateway.edit(sent, text("changed"))

    bench.run(main())


def test_an_edit_waits_for_the_message_before_it_in_the_lane(bench: Bench) -> None:
    """G6, GAP-8: edits are intents of the same lane."""

    async def main() -> None:
        async with bench.gateway() as gateway:
            first = await gateway.send(text("first"))
            bench.platform.ready = False
            second = await gateway.send(text("second"), wait=False)
            edit = await gateway.edit(first, text("first, edited"), wait=False)
            bench.platform.ready = True
            await bench.clock.advance(1)
            assert [request.context.intent for request in bench.platform.requests[1:]] == [second.intent, edit.intent]

    bench.run(main())


def test_a_message_is_not_deleted_while_more_of_it_may_come(bench: Bench) -> None:
    """RCP-4: a delete takes every part away, so it needs all of them; a cancel makes it possible."""

    async def main() -> None:
        bench.platform.plan(accept, reject("rate_limit", retry_after_s=60.0))
        async with bench.gateway(bench.platform.channel(text=SHORT)) as gateway:
            sent = await gateway.send(text(parts(3)))
            assert (sent.status, len(bench.platform.visible)) == (Status.PENDING, 1)
            with pytest.raises(NotPossible, match="more of it may still become visible"):
                await gateway.delete(sent)
            assert (await gateway.cancel(sent, "no longer wanted")).status is Status.FAILED
            assert (await gateway.delete(sent)).status is Status.SENT
            assert [entry[:2] for entry in bench.platform.log] == [("delete", bench.platform.visible[0].id)]

    bench.run(main())
