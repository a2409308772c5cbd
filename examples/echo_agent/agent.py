"""An agent that remembers what you said, on Telegram or Matrix, however often its process is killed.

    TELEGRAM_TOKEN=... python agent.py
    MATRIX_URL=https://matrix.example.org MATRIX_USER=@bot:example.org MATRIX_TOKEN=... python agent.py

It keeps nothing itself. What came in and what it answered stands in `agent.db`, and is its memory. Kill it whenever you
like and start it again: no message is lost, none is answered twice, and the conversation goes on where it was.
"""

from __future__ import annotations

import asyncio
import os
import signal

import msgledger
from msgledger import Inbound

LEDGER = os.environ.get("AGENT_LEDGER", "agent.db")


def channel() -> msgledger.Channel:
    """The one platform that the environment names."""
    if token := os.environ.get("TELEGRAM_TOKEN"):
        return msgledger.TelegramChannel(token, base_url=os.environ.get("TELEGRAM_URL", "https://api.telegram.org"))
    return msgledger.MatrixChannel(
        os.environ["MATRIX_URL"],
        user_id=os.environ["MATRIX_USER"],
        token=os.environ["MATRIX_TOKEN"],
        device_id=os.environ.get("MATRIX_DEVICE"),
    )


def think(words: str, remembered: list[str]) -> str:
    """Where a language model would be asked. This one counts, so that a lost or doubled message shows."""
    told = len(remembered) + 1
    if not remembered:
        return f"1: you said {words!r}. I shall remember it."
    return f"{told}: you said {words!r}, before that {remembered[-1]!r}, and first of all {remembered[0]!r}."


async def answer(inbound: Inbound) -> None:
    """One turn. It may run again after a crash; what it had answered then is not answered a second time."""
    before = await inbound.history(limit=1_000)
    remembered = [entry.text for entry in before if entry.role == "user"]
    await inbound.reply(think(inbound.message.text, remembered))


async def main() -> None:
    stop = asyncio.Event()
    for signal_ in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signal_, stop.set)
    async with msgledger.open(LEDGER, channels=[channel()], on_message=answer):
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main())
