"""What our own platform has accepted, and how it was told to misbehave. Plain state under one lock, no network.

The record is the independent truth of the tests: a line is in the file before anybody can hear of it, lines are only
ever appended, and a restart reads them back. Standard library only.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
import uuid
from collections import deque
from pathlib import Path
from typing import Any, Final

Fields = dict[str, Any]

SETTINGS: Final[Fields] = {
    "on_duplicate": "first_id",
    "window_s": 86_400.0,
    "lookup_lag_s": 0.0,
    "ids": "int",
    "text_max": 2000,
    "complete": True,
}
"""`on_duplicate`: first_id | conflict_with_id | conflict | accept_again. `ids`: int | uuid | none. `complete`: whether
a look-up says that it saw everything."""
WRITES: Final = ("POST", "PATCH", "DELETE")
UPLOAD: Final = "UPLOAD"
"""What a rule names to be about uploads: `{"match": {"method": "UPLOAD"}}`."""
ACTION_OF: Final = {"POST": "send", "PATCH": "edit", "DELETE": "delete"}
REQUESTS_MAX: Final = 100_000
FAULTS: Final[dict[str, Fields]] = {
    "drop": {"do": "accept_drop"},
    "lose": {"do": "drop"},
    "rate": {"do": "rate_limit", "retry_after_s": 0.2, "scope": "lane"},
    "slow": {"do": "slow", "delay_s": 0.3},
    "error": {"do": "server_error", "accepted": True},
    "truncate": {"do": "accept_truncated"},
}


class Refused(Exception):
    """A well-formed refusal: status and the error object."""

    def __init__(self, status: int, failure: str, code: str, detail: str, **more: Any) -> None:
        super().__init__(detail)
        self.status = status
        self.error: Fields = {"class": failure, "code": code, "detail": detail, **more}


class Book:
    """Everything that was accepted, in order. Every method may be called from any thread."""

    def __init__(self, record: Path, *, faults: dict[str, float] | None = None, seed: int = 0) -> None:
        self._lock = threading.Lock()
        self._lines: list[Fields] = []
        self._keys: dict[tuple[str, str], Fields] = {}
        self._uploads: dict[str, Fields] = {}
        self._rules: list[Fields] = []
        self._settings = dict(SETTINGS)
        self._faults = faults or {}
        self._random = random.Random(seed)
        self.requests: deque[Fields] = deque(maxlen=REQUESTS_MAX)
        self._load(record)
        self._file = os.open(record, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def close(self) -> None:
        os.close(self._file)

    def accept(self, action: str, fields: Fields) -> tuple[Fields, bool]:
        """The entry that stands for the request, and whether it was there before. Raises `Refused`."""
        with self._lock:
            now = time.time()
            key = fields.get("key")
            first = self._keys.get((action, key)) if isinstance(key, str) else None
            in_window = first is not None and now - first["time"] <= self._settings["window_s"]
            if first is not None and in_window and self._settings["on_duplicate"] != "accept_again":
                self._write({"action": "recognised", "time": now, "key": key, "duplicate_of": first["id"]})
                return self._duplicate(first)
            known = fields.get("key") or fields.get("label")
            earlier = self._keys.get((action, known)) if isinstance(known, str) else None
            entry: Fields = {"order": len(self._lines) + 1, "time": now, "action": action, "id": self._id(fields)}
            entry |= {
                name: fields.get(name)
                for name in ("place", "thread", "text", "format", "kind", "media", "reply_to", "origin")
            }
            entry["media"] = self._media(entry["media"])
            entry |= {"key": known, "label_only": fields.get("key") is None, "duplicate_of": _first_id(earlier)}
            self._check(action, entry)
            self._write(entry)
            self._add(entry)
            return entry, False

    def upload(self, name: str, kind: str, sha256: str, size: int) -> Fields:
        """Take in a file. It shows nothing yet, and the same file again gets another id."""
        with self._lock:
            entry: Fields = {"action": "upload", "time": time.time(), "id": f"u{len(self._uploads) + 1}"}
            entry |= {"name": name, "type": kind, "sha256": sha256, "size": size}
            self._write(entry)
            self._uploads[entry["id"]] = entry
            return entry

    def found(self, *, key: str | None, place: str | None, after: int) -> tuple[list[Fields], bool]:
        """What a look-up shows: entries with that key, or of that place behind that order number."""
        with self._lock:
            until = time.time() - self._settings["lookup_lag_s"]
            seen = [line for line in self._lines if line["time"] <= until and line["order"] > after]
            if key is not None:
                seen = [line for line in seen if line["key"] == key]
            if place is not None:
                seen = [line for line in seen if line["place"] == place]
            return seen[:500], bool(self._settings["complete"]) and len(seen) <= 500

    def accepted(self) -> list[Fields]:
        with self._lock:
            return list(self._lines)

    def configure(self, changes: Fields) -> Fields:
        with self._lock:
            unknown = set(changes) - set(SETTINGS)
            if unknown:
                raise Refused(400, "invalid_payload", "unknown_setting", f"no such setting: {sorted(unknown)}")
            self._settings |= changes
            return dict(self._settings)

    def script(self, rules: list[Fields]) -> int:
        with self._lock:
            self._rules += [{"match": {}, "times": 1, "seen": 0, **rule} for rule in rules]
            return len(self._rules)

    def clear(self) -> None:
        with self._lock:
            self._rules.clear()

    def action_for(self, method: str, fields: Fields) -> Fields:
        """What to do with this request: the first rule that matches and has times left, else the seeded faults."""
        with self._lock:
            self.requests.append(
                {"method": method, "key": fields.get("key") or fields.get("label"), "time": time.time()}
            )
            for rule in self._rules:
                if rule["times"] != 0 and _matches(rule, method, fields):
                    rule["seen"] += 1
                    if rule["match"].get("nth") in (None, rule["seen"]):
                        rule["times"] -= 1
                        action = rule.get("action", "accept")
                        return {"do": action} if isinstance(action, str) else {"do": "accept", **action}
            if method in WRITES and self._faults:
                drawn = self._random.random()
                for name, share in self._faults.items():
                    if drawn < share:
                        return FAULTS[name]
                    drawn -= share
            return {"do": "accept"}

    def text_max(self) -> int:
        with self._lock:
            return int(self._settings["text_max"])

    def _duplicate(self, first: Fields) -> tuple[Fields, bool]:
        how = self._settings["on_duplicate"]
        if how == "first_id":
            return first, True
        more = {"key": first["key"], **({"id": first["id"]} if how == "conflict_with_id" else {})}
        raise Refused(409, "conflict", "duplicate_key", "this key was used before", **more)

    def _media(self, media: Fields | None) -> Fields | None:
        """An upload as people see it: what it holds, not the id that it came under."""
        if media is None or "upload" not in media:
            return media
        upload = self._uploads.get(media["upload"])
        if upload is None:
            raise Refused(404, "not_found", "no_such_upload", "the message names an upload that is not there")
        seen = {name: upload[name] for name in ("type", "sha256", "size")}
        return {name: value for name, value in media.items() if name != "upload"} | seen

    def _check(self, action: str, entry: Fields) -> None:
        text = entry["text"] or ""
        if action != "delete" and not text and not entry["media"]:
            raise Refused(400, "invalid_payload", "empty", "a message needs a text or media")
        if len(text) > self._settings["text_max"]:
            raise Refused(400, "invalid_payload", "too_long", f"the most is {self._settings['text_max']} code points")
        if action != "send":
            mine = [line for line in self._lines if line["id"] == entry["id"]]
            if not mine or mine[-1]["action"] == "delete":
                raise Refused(404, "not_found", "message_not_found", "no such message")
            entry["place"] = mine[0]["place"]

    def _id(self, fields: Fields) -> str | int | None:
        """Ids are kept as text or number, as they are given out; of an edit or delete, the message's own."""
        if "id" in fields:
            given = str(fields["id"])
            return int(given) if given.isdecimal() else given
        kind = self._settings["ids"]
        return str(uuid.uuid4()) if kind == "uuid" else None if kind == "none" else 1000 + len(self._lines)

    def _write(self, line: Fields) -> None:
        os.write(self._file, json.dumps(line, ensure_ascii=False).encode() + b"\n")

    def _add(self, entry: Fields) -> None:
        self._lines.append(entry)
        if entry["key"] is not None:
            self._keys[entry["action"], entry["key"]] = entry

    def _load(self, record: Path) -> None:
        """Reads the record back; a torn last line was never answered and is cut off."""
        if not record.exists():
            return
        raw = record.read_bytes()
        whole = raw[: raw.rfind(b"\n") + 1]
        if len(whole) != len(raw):
            os.truncate(record, len(whole))
        for line in whole.splitlines():
            entry = json.loads(line)
            if entry["action"] == "upload":
                self._uploads[entry["id"]] = entry
            elif entry["action"] != "recognised":
                self._add(entry)


def _first_id(earlier: Fields | None) -> str | int | None:
    """Of several copies under one key, the id of the first."""
    return None if earlier is None else earlier["duplicate_of"] or earlier["id"]


def _matches(rule: Fields, method: str, fields: Fields) -> bool:
    """All that the rule names; without a method it is about writes only."""
    match: Fields = rule["match"]
    wanted = (match["method"],) if "method" in match else WRITES
    if method not in wanted:
        return False
    if "key" in match and match["key"] not in (fields.get("key"), fields.get("label")):
        return False
    if "text" in match and match["text"] not in str(fields.get("text") or ""):
        return False
    return "place" not in match or match["place"] == fields.get("place")
