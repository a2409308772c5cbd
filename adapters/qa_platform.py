"""Our own platform: a real HTTP server in a process of its own, for tests, the demo and the crash laboratory.

    python -m msgledger.adapters.qa_platform --port 0 --record FILE.jsonl --ready-file F [--token T]
        [--faults drop=0.1,rate=0.1,slow=0.05 --seed 7] [--until-eof]

It is told how to misbehave (`POST /v1/script`) and keeps the truth in the record file. Standard library only, loopback
only: it is never a service for anybody else.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from .qa_book import ACTION_OF, FAULTS, UPLOAD, Book, Fields, Refused
from .qa_inbox import Inbox
from .qa_process import QaPlatform
from .qa_socket import Socket, accepted

__all__ = ["QaPlatform", "main"]

BODY_MAX_BYTES: Final = 1_048_576
UPLOAD_MAX_BYTES: Final = 64 * 1_048_576
PIECE_BYTES: Final = 65_536
INBOUND: Final = ("/v1/poll", "/v1/socket", "/v1/say", "/v1/hook", "/v1/inbound")
STATUS_OF: Final = {
    "transient": 503,
    "rate_limit": 429,
    "invalid_payload": 400,
    "auth": 401,
    "permission": 403,
    "not_found": 404,
    "conflict": 409,
    "cancelled": 409,
    "unknown": 400,
}


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, address: tuple[str, int], book: Book, inbox: Inbox, token: str) -> None:
        super().__init__(address, Handler)
        self.book = book
        self.inbox = inbox
        self.token = token

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is nothing to report."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "msgledger-qa"
    disable_nagle_algorithm = True
    wbufsize = 65_536
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def log_message(self, format: str, *args: Any) -> None:
        """Bodies, keys and paths are nobody's business."""

    def do_GET(self) -> None:
        self._handle()

    do_POST = do_PATCH = do_DELETE = do_GET

    def _handle(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        size = int(self.headers.get("content-length") or 0)
        uploads = (self.command, url.path) == ("POST", "/v1/media")
        if size > (UPLOAD_MAX_BYTES if uploads else BODY_MAX_BYTES):
            self.close_connection = True
            code = "media_too_large" if uploads else "too_large"
            return self._answer(413, {"error": {"class": "invalid_payload", "code": code, "detail": "too large"}})
        if uploads:
            return self._upload(query, size)
        raw = self.rfile.read(size)
        try:
            body: Fields = json.loads(raw) if raw else {}
            if not isinstance(body, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ValueError("not an object")
            if url.path.startswith("/v1/messages"):
                return self._messages(url.path, query, {**query, **body})
            if url.path in INBOUND:
                return self._inbound(url.path, query, body)
            return self._control(url.path, body)
        except Refused as refused:
            return self._answer(refused.status, {"error": refused.error})
        except ValueError as error:
            detail = f"the body cannot be read: {error}"
            return self._answer(400, {"error": {"class": "invalid_payload", "code": "bad_json", "detail": detail}})

    def _control(self, path: str, body: Fields) -> None:
        book, called = self.server.book, (self.command, path)
        if called == ("GET", "/v1/accepted"):
            return self._answer(200, {"accepted": book.accepted()})
        if called == ("GET", "/v1/requests"):
            return self._answer(200, {"requests": list(book.requests)})
        if called == ("POST", "/v1/settings"):
            return self._answer(200, book.configure(body))
        if called == ("POST", "/v1/script"):
            return self._answer(200, {"rules": book.script(body.get("rules", [body]))})
        if called == ("DELETE", "/v1/script"):
            book.clear()
            return self._answer(200, {"rules": 0})
        raise Refused(404, "not_found", "no_such_endpoint", f"{self.command} {path}")

    def _inbound(self, path: str, query: Fields, body: Fields) -> None:
        """The other direction: what somebody says to us, and how we fetch it."""
        inbox = self.server.inbox
        match self.command, path:
            case "POST", "/v1/poll":
                self._authorized()
                acknowledged, wait_s = body.get("acknowledged_cursor"), float(body.get("wait_s") or 0.0)
                action = self.server.book.action_for("POLL", {})
                if action["do"] != "accept":
                    return self._act(action, {}, query)
                reads = "acknowledged_cursor" not in body
                return self._answer(200, inbox.poll(body.get("cursor"), acknowledged, wait_s, reads=reads))
            case "GET", "/v1/socket":
                self._authorized()
                self.close_connection = True
                self.connection.sendall(accepted({name.lower(): value for name, value in self.headers.items()}))
                return Socket(self.connection, self.rfile, inbox).serve()  # pyright: ignore[reportArgumentType]
            case "POST", "/v1/say":
                return self._answer(200, {"events": inbox.say(body["events"])})
            case "POST", "/v1/hook":
                inbox.hook(body["url"], body["secret"])
                return self._answer(200, {})
            case "POST", "/v1/inbound":
                return self._answer(200, inbox.settings(body))
            case "GET", "/v1/inbound":
                return self._answer(200, inbox.truth())
            case _:
                raise Refused(404, "not_found", "no_such_endpoint", f"{self.command} {path}")

    def _upload(self, query: Fields, size: int) -> None:
        """A file in one request, kept as its digest: the truth that a test compares with."""
        digest = hashlib.sha256()
        left = size
        while left and (piece := self.rfile.read(min(left, PIECE_BYTES))):
            digest.update(piece)
            left -= len(piece)
        if left:
            return self._drop()
        kind = self.headers.get("content-type", "")
        fields: Fields = {"upload": (query.get("name", ""), kind, digest.hexdigest(), size)}
        try:
            self._authorized()
            self._act(self.server.book.action_for(UPLOAD, fields), fields, query)
        except Refused as refused:
            self._answer(refused.status, {"error": refused.error})

    def _authorized(self) -> None:
        if self.server.token and self.headers.get("authorization") != f"Bearer {self.server.token}":
            raise Refused(401, "auth", "bad_token", "the token is missing or wrong")

    def _messages(self, path: str, query: Fields, fields: Fields) -> None:
        self._authorized()
        action = self.server.book.action_for(self.command, fields)
        named = unquote(path.removeprefix("/v1/messages").removeprefix("/"))
        if bool(named) != (self.command in ("PATCH", "DELETE")):
            raise Refused(404, "not_found", "no_such_endpoint", f"{self.command} {path}")
        if named:
            fields["id"] = named
        if self.command == "POST" and not isinstance(fields.get("place"), str):
            raise Refused(400, "invalid_payload", "no_place", "a message needs a place")
        self._act(action, fields, query)

    def _do(self, fields: Fields, query: Fields) -> Fields:
        """What the request asks for, as an answer's body."""
        book = self.server.book
        if "upload" in fields:
            taken = book.upload(*fields["upload"])
            return {"upload": taken["id"], "sha256": taken["sha256"], "size": taken["size"]}
        if self.command == "GET":
            after = int(query.get("after", 0))
            found, complete = book.found(key=query.get("key"), place=query.get("place"), after=after)
            return {"messages": [_shown(entry) for entry in found], "complete": complete}
        entry, duplicate = book.accept(ACTION_OF[self.command], fields)
        if not duplicate:
            self.server.inbox.echo(entry)
        return {**_shown(entry), "duplicate": duplicate}

    def _act(self, action: Fields, fields: Fields, query: Fields) -> None:
        match action["do"]:
            case "accept":
                self._answer(200, self._do(fields, query))
            case "accept_no_id":
                self._answer(200, {**self._do(fields, query), "id": None})
            case "accept_drop":
                self._do(fields, query)
                self._drop()
            case "drop":
                self._drop()
            case "accept_late":
                timer = threading.Timer(action.get("after_s", 1.0), self._late, (fields, query))
                timer.daemon = True
                timer.start()
                self._drop()
            case "accept_truncated":
                self._answer(200, self._do(fields, query), truncated=True)
            case "accept_hang":
                self._do(fields, query)
                time.sleep(action.get("after_s", 60.0))
                self._drop()
            case "hang":
                time.sleep(action.get("after_s", 60.0))
                self._drop()
            case "slow":
                time.sleep(action.get("delay_s", 1.0))
                self._answer(200, self._do(fields, query))
            case "server_error":
                if action.get("accepted"):
                    self._do(fields, query)
                self._answer(action.get("status", 500), {"error": "internal server error"})
            case "malformed":
                self._do(fields, query)
                self._answer(200, raw=action.get("body", "<html>ok</html>").encode(), kind="text/html")
            case "redirect":
                self._answer(action.get("status", 307), {}, headers={"location": action.get("to", "/v1/messages")})
            case "rate_limit":
                self._rate_limit(action)
            case "reject":
                self._reject(action)
            case other:
                raise Refused(400, "invalid_payload", "unknown_action", f"no such action: {other}")

    def _late(self, fields: Fields, query: Fields) -> None:
        try:
            self._do(fields, query)
        except Refused:
            return

    def _rate_limit(self, action: Fields) -> None:
        wait, scope = action.get("retry_after_s", 1.0), action.get("scope", "lane")
        error: Fields = {"class": "rate_limit", "code": "slow_down", "detail": "too many requests", "scope": scope}
        headers: dict[str, str] = {}
        if action.get("form", "json") == "header":
            headers["retry-after"] = str(wait)
        else:
            error["retry_after"] = wait
        self._answer(429, {"error": error}, headers=headers)

    def _reject(self, action: Fields) -> None:
        failure = action.get("class", "invalid_payload")
        status = action.get("status") or STATUS_OF.get(failure, 400)
        error = {
            "class": failure,
            "code": action.get("code"),
            "detail": action.get("detail", "scripted"),
            "accepted": False,
        }
        more = {name: action[name] for name in ("retry_after", "scope", "key", "id") if name in action}
        self._answer(status, {"error": error | more})

    def _drop(self) -> None:
        """Ends the connection without an answer."""
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def _answer(
        self,
        status: int,
        body: Fields | None = None,
        *,
        raw: bytes | None = None,
        kind: str = "application/json",
        headers: dict[str, str] | None = None,
        truncated: bool = False,
    ) -> None:
        payload = raw if raw is not None else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"content-type": kind, "content-length": str(len(payload)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(payload[: len(payload) // 2] if truncated else payload)
        self.wfile.flush()
        if truncated:
            self._drop()


def _shown(entry: Fields) -> Fields:
    """An entry as the platform gives it out."""
    names = ("id", "order", "action", "place", "thread", "text", "reply_to", "key", "origin")
    return {name: entry.get(name) for name in names} | {"at": int(entry["time"] * 1000)}


def _faults(text: str) -> dict[str, float]:
    pairs = [part.split("=", 1) for part in text.split(",") if part]
    found = {pair[0]: float(pair[1]) for pair in pairs}
    if set(found) - set(FAULTS) or sum(found.values()) > 1:
        raise argparse.ArgumentTypeError(f"{text!r}: give shares of {', '.join(FAULTS)} that add up to 1 at most")
    return found


def _end_with_stdin(server: Server) -> None:
    """Whoever started this process holds its standard input; when they die, so does it."""
    while os.read(0, 4096):
        pass
    server.shutdown()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser("msgledger.adapters.qa_platform", description="msgledger's own test platform")
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--record", type=Path, required=True, help="everything accepted, a JSON line each")
    parser.add_argument("--ready-file", type=Path, required=True, help="written once the server listens")
    parser.add_argument("--token", default="", help="asked for as a bearer token, where given")
    parser.add_argument(
        "--faults", type=_faults, default={}, help="shares of requests that go wrong: drop=0.1,rate=0.05"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--until-eof", action="store_true", help="end with the standard input")
    options = parser.parse_args(arguments)
    book = Book(options.record, faults=options.faults, seed=options.seed)
    inbox = Inbox(options.record.with_name(f"{options.record.stem}-inbound.jsonl"), options.seed)
    server = Server(("127.0.0.1", options.port), book, inbox, options.token)

    def end(_signal: int, _frame: object) -> None:
        threading.Thread(target=server.shutdown).start()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if options.until_eof:
        threading.Thread(target=_end_with_stdin, args=(server,), daemon=True).start()
    ready = {"url": f"http://127.0.0.1:{server.server_port}", "port": server.server_port, "pid": os.getpid()}
    partial = options.ready_file.with_suffix(".partial")
    partial.write_text(json.dumps(ready))
    partial.rename(options.ready_file)
    try:
        server.serve_forever(poll_interval=0.05)
    finally:
        inbox.close()
        server.server_close()
        book.close()


if __name__ == "__main__":
    main()
