"""What our own platform delivers to us: polled, pushed or over a socket, again and again until it is acknowledged.

It can be told to deliver twice, in another order, at once, or slowly, and it keeps the truth in a file: what was said,
what was delivered how often, and when it was acknowledged. Standard library only.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import threading
import time
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from .qa_book import Fields, Refused
from .qa_signature import SIGNATURE, TIMESTAMP, signature

FAULTS: Final[Fields] = {
    "duplicate": False,
    "shuffle": False,
    "twice": False,
    "slow_s": 0.0,
    "retry_s": 0.1,
    "page": 100,
    "echo": False,
    "ping_s": 0.0,
    "drop_after": 0,
}
"""`duplicate`: each event twice in a page, and pushed again after its 2xx. `shuffle`: pages in another order. `twice`:
each push two times at once. `slow_s`: before anything is delivered. `echo`: what we send comes in again as our own.
`ping_s`: how often a socket is pinged. `drop_after`: a socket is cut after so many frames."""
WAIT_MAX_S: Final = 60.0
PUSH_MAX_S: Final = 15.0


class Inbox:
    """Every method may be called from any thread."""

    def __init__(self, record: Path, seed: int = 0) -> None:
        self._news = threading.Condition()
        self._events: list[Fields] = []
        self._acknowledged: set[int] = set()
        self._settings = dict(FAULTS)
        self._random = random.Random(seed)
        self._closed = False
        self._pushers: list[threading.Thread] = []
        self._load(record)
        self._file = os.open(record, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def close(self) -> None:
        with self._news:
            self._closed = True
            self._news.notify_all()
        for thread in self._pushers:
            thread.join(PUSH_MAX_S)
        os.close(self._file)

    @property
    def closed(self) -> bool:
        return self._closed

    def settings(self, changes: Fields | None = None) -> Fields:
        with self._news:
            unknown = set(changes or {}) - set(FAULTS)
            if unknown:
                raise Refused(400, "invalid_payload", "unknown_setting", f"no such setting: {sorted(unknown)}")
            self._settings |= changes or {}
            return dict(self._settings)

    def say(self, events: list[Fields]) -> list[Fields]:
        """Somebody writes to us. Numbers and ids are the platform's, unless the event brings its own."""
        with self._news:
            made: list[Fields] = []
            for event in events:
                seq = len(self._events) + 1
                whole: Fields = {"id": f"e{seq}", "type": "message", "kind": "group", "message": f"m{seq}"}
                whole |= {"at": int(time.time() * 1000), **event, "seq": seq}
                self._write({"what": "event", "event": whole})
                self._events.append(whole)
                made.append(whole)
            self._news.notify_all()
            return made

    def echo(self, entry: Fields) -> None:
        """What was sent through us, as its author sees it come in."""
        if self._settings["echo"] and entry["action"] == "send":
            names = ("place", "thread", "text", "reply_to", "key", "origin")
            told = {name: entry[name] for name in names if entry.get(name) is not None}
            self.say([{**told, "message": str(entry["id"]), "from": "bot", "bot": True, "own": True}])

    def poll(self, cursor: str | None, acknowledged: str | None, wait_s: float, *, reads: bool) -> Fields:
        """What is behind the cursor; where asking acknowledges, all that is not acknowledged."""
        after = _number(cursor)
        with self._news:
            if acknowledged is not None:
                self._acknowledge([event["seq"] for event in self._events if event["seq"] <= _number(acknowledged)])
            ends = time.monotonic() + min(wait_s, WAIT_MAX_S)
            while not (found := self._behind(after, reads=reads)) and not self._closed:
                left = ends - time.monotonic()
                if left <= 0:
                    break
                self._news.wait(left)
            page = found[: self._settings["page"]]
            last = str(page[-1]["seq"]) if page else cursor
            delivered = self._delivered(page, "poll")
        self.slow()
        return {"events": delivered, "cursor": last}

    def behind(self, seen: int, wait_s: float) -> list[Fields]:
        """What a socket has not been given yet."""
        with self._news:
            if not (found := self._behind(seen, reads=False)):
                self._news.wait(wait_s)
                found = self._behind(seen, reads=False)
            return self._delivered(found[: self._settings["page"]], "socket")

    def acknowledge(self, ids: list[Any]) -> None:
        with self._news:
            self._acknowledge([event["seq"] for event in self._events if event["id"] in ids])

    def note(self, line: Fields) -> None:
        """One more line of the truth."""
        with self._news:
            self._write(line)

    def hook(self, url: str, secret: str) -> None:
        """Push everything there, one event a request, until each has its 2xx."""
        thread = threading.Thread(target=self._push_all, args=(url, secret), daemon=True)
        self._pushers.append(thread)
        thread.start()

    def truth(self) -> Fields:
        with self._news:
            pending = [event["id"] for event in self._events if event["seq"] not in self._acknowledged]
            return {"events": list(self._events), "pending": pending}

    def slow(self) -> None:
        if self._settings["slow_s"]:
            time.sleep(self._settings["slow_s"])

    # ---- pushing

    def _push_all(self, url: str, secret: str) -> None:
        while True:
            with self._news:
                while not (found := self._behind(0, reads=False)) and not self._closed:
                    self._news.wait()
                if self._closed:
                    return
                [event, *again] = self._delivered(found[:1], "push")
                twice, duplicate = self._settings["twice"], bool(again)
            self.slow()
            body = json.dumps({"events": [event]}).encode()
            statuses = self._pushed(url, secret, body, 2 if twice else 1)
            if duplicate:
                statuses += self._pushed(url, secret, body, 1)
            with self._news:
                self._write({"what": "pushed", "id": event["id"], "statuses": statuses})
                if any(200 <= status < 300 for status in statuses):
                    self._acknowledge([event["seq"]])
                else:
                    self._news.wait(self._settings["retry_s"])

    def _pushed(self, url: str, secret: str, body: bytes, times: int) -> list[int]:
        statuses: list[int] = []
        threads = [threading.Thread(target=lambda: statuses.append(push(url, secret, body))) for _ in range(times)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return statuses

    # ---- under the lock

    def _behind(self, after: int, *, reads: bool) -> list[Fields]:
        return [
            event
            for event in self._events[after if reads else 0 :]
            if event["seq"] > after and (reads or event["seq"] not in self._acknowledged)
        ]

    def _delivered(self, events: list[Fields], how: str) -> list[Fields]:
        found = [event for event in events for _ in range(2 if self._settings["duplicate"] else 1)]
        if self._settings["shuffle"]:
            self._random.shuffle(found)
        for event in found:
            self._write({"what": "delivered", "id": event["id"], "how": how})
        return found

    def _acknowledge(self, seqs: list[int]) -> None:
        for seq in seqs:
            if seq not in self._acknowledged:
                self._acknowledged.add(seq)
                self._write({"what": "acknowledged", "id": self._events[seq - 1]["id"], "seq": seq})

    def _write(self, line: Fields) -> None:
        os.write(self._file, json.dumps({**line, "time": time.time()}, ensure_ascii=False).encode() + b"\n")

    def _load(self, record: Path) -> None:
        if not record.exists():
            return
        raw = record.read_bytes()
        whole = raw[: raw.rfind(b"\n") + 1]
        if len(whole) != len(raw):
            os.truncate(record, len(whole))
        for line in map(json.loads, whole.splitlines()):
            if line["what"] == "event":
                self._events.append(line["event"])
            elif line["what"] == "acknowledged":
                self._acknowledged.add(line["seq"])


def push(url: str, secret: str, body: bytes) -> int:
    """One signed push; the status, 0 where there was no answer."""
    parts, timestamp = urlsplit(url), str(int(time.time() * 1000))
    headers = {"content-type": "application/json", TIMESTAMP: timestamp}
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=PUSH_MAX_S)
    try:
        connection.request("POST", parts.path, body, {**headers, SIGNATURE: signature(secret, timestamp, body)})
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def _number(cursor: str | None) -> int:
    return int(cursor) if cursor is not None and cursor.isascii() and cursor.isdecimal() else 0
