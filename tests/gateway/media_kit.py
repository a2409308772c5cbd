"""What the tests of files share: a platform that reads what it is given, and a look at what is kept."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, NamedTuple

from msgledger import Attachment, CallableChannel, Message

from .kit import Bench, text
from .platform import Request

OLD = time.time() - 10_000.0


class Seen(NamedTuple):
    """What the platform got with one request."""

    unit: int
    name: str | None
    content: bytes | None


class Files:
    """A bench with a channel that takes files; `seen` is what went out."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.seen: list[Seen] = []
        self.folder = bench.path.with_name(bench.path.name + ".d") / "media"
        bench.platform.before = self._note

    async def _note(self, request: Request) -> None:
        media, there = request.unit.media, request.context.media
        content = None if there is None else there.read_bytes()
        self.seen.append(Seen(request.unit.index, None if media is None else media.name, content))

    def channel(self, **more: Any) -> CallableChannel:
        return self.bench.platform.channel(**{"attachments": "upload", **more})

    def gateway(self, **more: Any) -> Any:
        return self.bench.gateway(self.channel(), **more)

    @property
    def contents(self) -> list[bytes]:
        """Of every file that went out, in order."""
        return [one.content for one in self.seen if one.content is not None]

    def kept(self) -> list[Path]:
        """Every file beside the ledger, drafts included."""
        return sorted(path for path in self.folder.rglob("*") if path.is_file()) if self.folder.exists() else []

    def age(self) -> None:
        """As if all of them had been there for hours."""
        for path in self.kept():
            os.utime(path, (OLD, OLD))

    def needed(self) -> list[tuple[str, str, int | None]]:
        """The rows of the view: digest, intent, until when."""
        return self.bench.query("SELECT digest, intent, needed_until FROM media ORDER BY position")

    def rows(self) -> int:
        """How many events of intents there are."""
        return len(self.bench.types_of_intents())


def with_file(source: Path | bytes, words: str = "", place: str = "room-4711", **more: Any) -> Message:
    """A message with one file, from a path or from memory."""
    if isinstance(source, bytes):
        made = Attachment.of_bytes(more.pop("name", "report.pdf"), source)
    else:
        made = Attachment.of_file(source, **more)
    message = text(words or "-", place, attachments=(made,))
    return message if words else Message(message.target, attachments=message.attachments)
