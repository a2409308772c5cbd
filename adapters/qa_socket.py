"""The socket of our own platform: a WebSocket server of few lines, for one client and short frames.

Standard library only, and never a service for anybody else. What is not acknowledged is sent again on the next socket.
"""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import struct
import threading
import time
from collections.abc import Mapping
from typing import Any, BinaryIO, Final

from .qa_inbox import Inbox

MAGIC: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
TEXT, CLOSE, PING, PONG = 1, 8, 9, 10
LOOK_S: Final = 0.05


def accepted(headers: Mapping[str, str]) -> bytes:
    """The head of the answer that opens a socket."""
    key = (headers.get("sec-websocket-key") or "").encode()
    token = base64.b64encode(hashlib.sha1(key + MAGIC).digest())
    head = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\n"
    return head + b"sec-websocket-accept: " + token + b"\r\n\r\n"


class Socket:
    """One client, from its handshake on. `serve` returns when it is gone, or cut off as the settings say."""

    def __init__(self, connection: socket.socket, reader: BinaryIO, inbox: Inbox) -> None:
        self._connection, self._reader, self._inbox = connection, reader, inbox
        self._writing = threading.Lock()
        self._gone = threading.Event()

    def serve(self) -> None:
        threading.Thread(target=self._listen, daemon=True).start()
        seen, frames, pinged = 0, 0, time.monotonic()
        while not self._gone.is_set() and not self._inbox.closed:
            settings = self._inbox.settings()
            events = self._inbox.behind(seen, LOOK_S)
            if events:
                self._inbox.slow()
                self._write(TEXT, json.dumps({"events": events}).encode())
                seen, frames = max(event["seq"] for event in events), frames + 1
            if settings["ping_s"] and time.monotonic() - pinged > settings["ping_s"]:
                self._write(TEXT, json.dumps({"ping": frames}).encode())
                pinged = time.monotonic()
            if 0 < settings["drop_after"] <= frames:
                self._inbox.settings({"drop_after": 0})
                break

    def _listen(self) -> None:
        try:
            while True:
                kind, payload = self._read()
                if kind == CLOSE:
                    self._write(CLOSE, payload[:2])
                    break
                if kind == PING:
                    self._write(PONG, payload)
                if kind == TEXT:
                    self._told(json.loads(payload))
        except (OSError, ValueError, struct.error):
            pass
        self._gone.set()

    def _told(self, said: dict[str, Any]) -> None:
        if "ack" in said:
            self._inbox.acknowledge([said["ack"]])
        if "pong" in said:
            self._inbox.note({"what": "pong"})

    def _read(self) -> tuple[int, bytes]:
        first, second = self._exactly(2)
        length = second & 0x7F
        if length == 126:
            (length,) = struct.unpack("!H", self._exactly(2))
        elif length == 127:
            raise ValueError("longer than anything that a client says here")
        mask = self._exactly(4)
        return first & 0x0F, bytes(byte ^ mask[at % 4] for at, byte in enumerate(self._exactly(length)))

    def _exactly(self, count: int) -> bytes:
        found = self._reader.read(count)
        if len(found) != count:
            raise ValueError("the client is gone")
        return found

    def _write(self, kind: int, payload: bytes) -> None:
        size = len(payload)
        head = struct.pack("!BB", 0x80 | kind, size) if size < 126 else struct.pack("!BBH", 0x80 | kind, 126, size)
        if size > 0xFFFF:
            head = struct.pack("!BBQ", 0x80 | kind, 127, size)
        try:
            with self._writing:
                self._connection.sendall(head + payload)
        except OSError:
            self._gone.set()
