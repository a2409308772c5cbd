"""One HTTP exchange as values: the request, its answer, or the fault and how far it had come.

Sans-I/O: no socket, no clock, no header that holds a credential. What proves that nothing was sent is decided here,
once, by the phase of a fault, and never from an error's text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, TypeGuard, cast
from urllib.parse import urlencode

import msgspec

from ..ledger.errors import InvalidMessage
from ..ledger.limits import ERROR_TEXT_MAX_CHARS
from ..ledger.outcome import Cause, NotDispatched, Proof, Rejected, Unknown

Pairs = tuple[tuple[str, str], ...]
Phase = Literal["not_dispatched", "dispatched", "response_partial"]


@dataclass(frozen=True, slots=True)
class File:
    """A file in the body of a request: the driver streams `length` bytes. `path` is None where nothing goes out."""

    digest: str
    length: int
    path: Path | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of the platform, without credentials. `path` starts with `/` and is percent-encoded already."""

    method: str
    path: str
    query: Pairs = ()
    headers: Pairs = ()
    body: bytes = b""
    file: File | None = None
    """Goes out behind `body`."""
    tail: bytes = b""
    """Goes out behind `file`: the end of a form."""

    def __post_init__(self) -> None:
        for text in (self.method, self.path, *(part for pair in self.headers for part in pair)):
            if not text.isascii() or any(ord(char) < 0x20 or ord(char) == 0x7F for char in text):
                raise InvalidMessage(f"a request holds {text[:80]!r} where only printable ASCII may stand: encode it")
        if not self.path.startswith("/") or any(char in self.path for char in " ?#"):
            raise InvalidMessage(f"a request has the path {self.path[:80]!r}: start it with / and percent-encode it")

    @property
    def target(self) -> str:
        """Path and query as they go out."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path

    def to_bytes(self, base_url: str = "") -> bytes:
        """The request as it would go out, credentials left away: equal bytes are the same request.

        A file stands there with its keyed digest, not with its content or the place where it lies.
        """
        lines = [
            f"{self.method} {base_url}{self.target}",
            *(f"{name.lower()}: {value}" for name, value in self.headers),
        ]
        file = b"" if self.file is None else f"file {self.file.digest} {self.file.length}".encode("ascii")
        return "\r\n".join(lines).encode("ascii") + b"\r\n\r\n" + self.body + file + self.tail

    @classmethod
    def of_json(cls, method: str, path: str, body: Any, *, query: Pairs = (), headers: Pairs = ()) -> Request:
        """A JSON body whose bytes depend on its content alone: keys are sorted."""
        raw = msgspec.json.encode(body, order="deterministic")
        return cls(method, path, query, (("content-type", "application/json"), *headers), raw)

    @classmethod
    def of_form(cls, path: str, fields: Pairs, name: str, file: File, filename: str, media_type: str) -> Request:
        """A form with texts and one file, the file last. It is the same bytes for the same arguments.

        What separates its parts comes from the file's keyed digest, so that no content can hold it by intent.
        """
        words = f"{path} {fields} {file.digest} {file.length}"
        boundary = f"msgledger-{sha256(words.encode()).hexdigest()[:48]}"
        lines = [
            f'--{boundary}\r\ncontent-disposition: form-data; name="{key}"\r\n\r\n{value}' for key, value in fields
        ]
        called = filename.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
        lines.append(
            f'--{boundary}\r\ncontent-disposition: form-data; name="{name}"; filename="{called}"\r\n'
            f"content-type: {media_type}\r\n\r\n"
        )
        head, tail = "\r\n".join(lines).encode(), f"\r\n--{boundary}--\r\n".encode()
        headers = (("content-type", f"multipart/form-data; boundary={boundary}"),)
        return cls("POST", path, (), headers, head, file, tail)


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""
    at: float | None = None
    """UTC seconds at which the driver had it."""

    def json(self) -> dict[str, Any] | None:
        """The body where it is a JSON object, else None."""
        try:
            found = msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        return cast("dict[str, Any]", found) if isinstance(found, dict) else None

    def clock_ahead_s(self) -> float | None:
        """By how much the platform's clock is ahead of ours, to a second; None without a usable `Date`."""
        date = _date(self.headers.get("date", ""))
        return None if date is None or self.at is None else date - self.at

    def excerpt(self) -> str:
        """The start of the body, for an error's detail."""
        return self.body[: ERROR_TEXT_MAX_CHARS * 4].decode("utf-8", "replace")[:ERROR_TEXT_MAX_CHARS]


@dataclass(frozen=True, slots=True)
class Fault:
    """No answer, and how far the request had come when that was clear."""

    phase: Phase
    detail: str
    cause: Cause = Cause.RESET
    status: int | None = None
    """Of an answer whose head came and whose body did not."""

    def outcome(self) -> NotDispatched | Unknown:
        """Nothing left: proof. Anything after the first byte: unknown."""
        detail = self.detail[:ERROR_TEXT_MAX_CHARS]
        if self.phase == "not_dispatched":
            return NotDispatched(detail)
        return Unknown(self.cause, detail, status=self.status)


def without_class(answer: Answer, *, request_id: str | None = None) -> Unknown:
    """The outcome of an answer that an adapter does not map: it proves nothing (FAIL-10, FAIL-11)."""
    if answer.status >= 500:
        return Unknown(Cause.SERVER_ERROR, answer.excerpt(), status=answer.status, request_id=request_id)
    detail = answer.excerpt()
    if 300 <= answer.status < 400:
        place = answer.headers.get("location", "")[:80]
        detail = f"redirected to {place!r}; a write follows no redirect: correct the base URL"
    return Unknown(Cause.MALFORMED, detail, status=answer.status, request_id=request_id)


def nothing_visible(outcome: NotDispatched | Rejected | Unknown) -> Rejected:
    """What a failed preparation comes to: whatever happened to it, no message of ours can be visible.

    It is charged as an attempt where bytes left, so that an upload that always fails comes to an end.
    """
    if isinstance(outcome, Rejected):
        return outcome
    return Rejected(
        "transient",
        f"the preparation failed: {outcome.detail}"[:ERROR_TEXT_MAX_CHARS],
        code=f"prepare_{outcome.cause.value}",
        status=outcome.status,
        proof=Proof.NEVER_DISPATCHED,
    )


def retry_after_s(answer: Answer) -> float | None:
    """How long the platform asks to wait, the longest of what it says, or None.

    Read from the header `Retry-After` (seconds, or an HTTP date, against the answer's own `Date` where it has one) and
    from a JSON body's `retry_after` (seconds) and `retry_after_ms`, at the top or in `error` or `parameters`.
    """
    found: list[float] = []
    header = answer.headers.get("retry-after", "").strip()
    if header:
        seconds = _number(header)
        found.append(_until(header, answer) if seconds is None else seconds)
    body = answer.json() or {}
    for part in (body, body.get("error"), body.get("parameters")):
        if _is_object(part):
            found += [value for key, scale in _WAITS for value in _scaled(part.get(key), scale)]
    waits = [value for value in found if math.isfinite(value) and value >= 0]
    return max(waits, default=None)


_WAITS = (("retry_after", 1.0), ("retry_after_s", 1.0), ("retry_after_ms", 0.001))


def _is_object(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _scaled(value: object, scale: float) -> list[float]:
    number = _number(value)
    return [] if number is None else [number * scale]


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _until(header: str, answer: Answer) -> float:
    until = _date(header)
    now = _date(answer.headers.get("date", ""))
    if now is None:
        now = answer.at
    return math.nan if until is None or now is None else max(0.0, until - now)


def _date(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
