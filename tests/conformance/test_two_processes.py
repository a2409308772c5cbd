"""One process appends through a gateway, another follows through a subscription and misses nothing."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
from pathlib import Path

import msgledger
from msgledger import Message, Target
from msgledger.ledger.store.store import Store

FOLLOWER = Path(__file__).with_name("follower.py")
SENDS = 60
WAIT_S = 30.0


async def send_all(path: Path) -> list[str]:
    """One by one and many at once, before and while another process follows; what that one printed."""
    ids = itertools.count()

    async def deliver(unit, context):
        return str(next(ids))

    def message(number: int) -> Message:
        return Message.text(f"message {number}", to=Target.group("qa", f"room {number % 7}"))

    channel = msgledger.CallableChannel("qa", deliver=deliver)
    async with msgledger.open(path, channels=[channel]) as gateway:
        await gateway.send(message(0))
        follower = await asyncio.create_subprocess_exec(
            sys.executable, "-P", str(FOLLOWER), str(path), stdout=subprocess.PIPE
        )
        assert follower.stdout is not None
        assert await asyncio.wait_for(follower.stdout.readline(), WAIT_S) == b"ready\n"
        for number in range(SENDS // 4):
            await gateway.send(message(number))
        await asyncio.gather(*[gateway.send(message(number)) for number in range(SENDS)])
    try:
        printed, _ = await asyncio.wait_for(follower.communicate(), WAIT_S)
    finally:
        if follower.returncode is None:
            follower.kill()
            await follower.wait()
    assert follower.returncode == 0
    return printed.decode().splitlines()


def test_a_follower_in_another_process_misses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "l.db"
    printed = asyncio.run(send_all(path))
    with Store.open(path, (), wall_ms=lambda: 0, read_only=True) as store:
        truth = [f"{found.position} {found.stream} {found.version} {found.topic}" for found in store.page(0, 10_000)]
    assert len(truth) > 4 * SENDS
    assert printed == truth
