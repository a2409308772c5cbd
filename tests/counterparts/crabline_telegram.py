"""Crabline's Telegram server: a Bot API with one bot, whose people speak through its admin door.

It keeps no history that could be asked for: what a bot sent is read where it came by (the proxy of the test), with the
answers that the server gave. `differences.py` says what else it does otherwise than Telegram.
"""

from __future__ import annotations

import json
import secrets
from typing import Any

from .crabline import Server


class CrablineTelegram(Server):
    provider = "telegram"
    bot_id, username = 424242, "crabline_bot"

    def _ready(self, said: dict[str, Any]) -> None:
        self.token = said["botToken"]

    def create_chat(self) -> str:
        """The number of a person that nobody has spoken to. Its first message is not number 1, which is a topic's."""
        chat = str(secrets.randbelow(2**40) + 2**20)
        self.api("createForumTopic", chat_id=int(chat), name="first")
        return chat

    def says(self, chat: str, text: str, **more: Any) -> dict[str, Any]:
        """Somebody writes. The update as the bot will get it."""
        body = {"chatId": int(chat), "text": text, **more}
        headers = {"X-Crabline-Admin-Token": self._admin}
        return self._call("/crabline/telegram/inbound", body, **headers)["update"]

    def api(self, method: str, **fields: Any) -> Any:
        """What the bot itself may ask, past everything that is tested."""
        return self._call(f"/bot{self.token}/{method}", fields)["result"]

    def waiting(self) -> list[int]:
        """The updates that are not confirmed."""
        return [update["update_id"] for update in self.api("getUpdates", timeout=0)]

    def recorded(self) -> list[dict[str, Any]]:
        """Every call that it keeps a record of, with whether it was accepted."""
        lines = (self.folder / "recorder.jsonl").read_text().splitlines()
        return [entry for line in lines if (entry := json.loads(line))["type"] == "api"]
