"""A real Matrix homeserver for the tests: Synapse in a virtual environment and a folder of its own, on loopback only.

    python tests/counterparts/synapse.py install

puts it into `.venv-counterparts/synapse` (about 30 s and 240 MB, once). Nothing here uses msgledger, so that what a
room holds is told by somebody else than the channel under test; and nothing here ever talks to another machine.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

REQUIREMENT = "matrix-synapse>=1.163.2,<1.164"
VENV = Path(__file__).resolve().parents[2] / ".venv-counterparts" / "synapse"
INSTALL_COMMAND = "python tests/counterparts/synapse.py install"
START_S = 60.0
STOP_S = 20.0
CALL_S = 20.0
PAGES_MAX = 50
GENEROUS = 10_000.0
SERVER_NAME = "counterpart.test"

_marker = VENV / "installed.txt"
_python = VENV / "bin" / "python"
_http = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def installed() -> bool:
    """Whether this version of the requirement was installed to the end."""
    return _python.exists() and _marker.exists() and _marker.read_text() == REQUIREMENT


def install() -> None:
    """Makes the virtual environment; does nothing where it stands already."""
    started = time.monotonic()
    if not installed():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(VENV)], check=True)
        pip = [str(_python), "-m", "pip", "--disable-pip-version-check", "install", "-qq", "--only-binary=:all:"]
        subprocess.run([*pip, REQUIREMENT], check=True)
        _marker.write_text(REQUIREMENT)
    print(f"{REQUIREMENT} is in {VENV} ({time.monotonic() - started:.1f} s)")


class CallFailed(Exception):
    """The homeserver refused a call of the harness. `status` and `errcode` are its words."""

    def __init__(self, what: str, status: int, answer: dict[str, Any]) -> None:
        super().__init__(f"{what}: {status} {answer}")
        self.status = status
        self.errcode = answer.get("errcode")


@dataclass(frozen=True, slots=True)
class Login:
    """A user's device with an access token; the token is no part of the repr."""

    user_id: str
    device_id: str
    token: str

    def __repr__(self) -> str:
        return f"Login({self.user_id}, {self.device_id})"


@dataclass(frozen=True, slots=True)
class Room:
    """A room, the bot that is in it, and the truth about it. `server`: or another one with the same methods."""

    server: Synapse
    bot: Login
    id: str

    def messages(self) -> list[dict[str, Any]]:
        """Its `m.room.message` events, oldest first, as the homeserver has them."""
        return self.server.messages(self.bot, self.id)

    def bodies(self) -> list[str]:
        return [event["content"].get("body", "") for event in self.messages()]

    def count(self, body: str) -> int:
        """How often a message with this very body is in it."""
        return self.bodies().count(body)


class Synapse:
    """One homeserver over one folder. It may be killed and started again on the same data and the same port.

    `messages_per_second` and `burst` limit what one user may send; by default they limit nothing. `session_s`: how long
    a token is good for.
    """

    def __init__(
        self,
        folder: Path,
        *,
        messages_per_second: float = GENEROUS,
        burst: float = GENEROUS,
        session_s: int | None = None,
    ) -> None:
        self.folder = folder
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._secret = secrets.token_hex(16)
        self._process: subprocess.Popen[bytes] | None = None
        self._config = folder / "homeserver.json"
        self._write_config(messages_per_second, burst, session_s)

    # Its life.

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> None:
        """Starts it unless it runs, and returns when it answers."""
        if self.pid is not None:
            return
        with (self.folder / "synapse.log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(_python), "-m", "synapse.app.homeserver", "-c", str(self._config)],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={"PATH": os.environ.get("PATH", ""), "HOME": str(self.folder), "LC_ALL": "C.UTF-8"},
            )
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            if self.pid is None:
                raise RuntimeError(f"Synapse ended by itself:\n{self.log()}")
            with contextlib.suppress(OSError):
                self._call("GET", "/_matrix/client/versions")
                return
            time.sleep(0.05)
        self.kill()
        raise RuntimeError(f"Synapse did not answer within {START_S:g} s:\n{self.log()}")

    def stop(self) -> None:
        """SIGTERM, and SIGKILL where that is not enough."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self.kill()
        self._process = None

    def kill(self) -> None:
        """SIGKILL: whatever it had not written is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = None

    def log(self) -> str:
        """The end of what it wrote."""
        return (self.folder / "synapse.log").read_text(errors="replace")[-4000:]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # People and rooms.

    def register(self, name: str, password: str = "password") -> str:
        """Makes a user by the shared secret and returns its id."""
        path = "/_synapse/admin/v1/register"
        nonce = self._call("GET", path)["nonce"]
        mac = hmac.new(
            self._secret.encode(),
            b"\0".join([nonce.encode(), name.encode(), password.encode(), b"notadmin"]),
            hashlib.sha1,
        )
        body = {"nonce": nonce, "username": name, "password": password, "mac": mac.hexdigest(), "inhibit_login": True}
        return str(self._call("POST", path, body)["user_id"])

    def login(self, user_id: str, device_id: str, password: str = "password") -> Login:
        """One more access token for this device; Synapse lets older ones go on."""
        who = {"type": "m.id.user", "user": user_id}
        body = {"type": "m.login.password", "identifier": who, "password": password, "device_id": device_id}
        answer = self._call("POST", "/_matrix/client/v3/login", body)
        return Login(user_id, answer["device_id"], answer["access_token"])

    def logout(self, login: Login) -> None:
        """The token is void from now on, and its device is gone."""
        self._call("POST", "/_matrix/client/v3/logout", {}, login)

    def create_room(self, login: Login, **content: Any) -> str:
        """A new private room of this user."""
        return str(
            self._call("POST", "/_matrix/client/v3/createRoom", {"preset": "private_chat", **content}, login)["room_id"]
        )

    def invite(self, login: Login, room: str, user_id: str) -> None:
        self._call("POST", f"/_matrix/client/v3/rooms/{quote(room, safe='')}/invite", {"user_id": user_id}, login)

    def join(self, login: Login, room: str) -> None:
        self._call("POST", f"/_matrix/client/v3/rooms/{quote(room, safe='')}/join", {}, login)

    def leave(self, login: Login, room: str) -> None:
        self._call("POST", f"/_matrix/client/v3/rooms/{quote(room, safe='')}/leave", {}, login)

    def room(self, device_id: str = "BOT") -> Room:
        """A new room of a new bot, which is logged in on this device."""
        bot = self.login(self.register(f"bot-{secrets.token_hex(4)}"), device_id)
        return Room(self, bot, self.create_room(bot))

    # The independent truth.

    def history(self, login: Login, room: str) -> list[dict[str, Any]]:
        """Every event of the room, oldest first, as this user sees it."""
        events: list[dict[str, Any]] = []
        page = f"/_matrix/client/v3/rooms/{quote(room, safe='')}/messages?dir=f&limit=100"
        start = ""
        for _ in range(PAGES_MAX):
            answer = self._call("GET", page + start, login=login)
            events += answer["chunk"]
            if "end" not in answer:
                return events
            start = f"&from={quote(answer['end'], safe='')}"
        raise RuntimeError(f"{room} has more than {PAGES_MAX} pages")

    def messages(self, login: Login, room: str) -> list[dict[str, Any]]:
        """The `m.room.message` events of the room, oldest first."""
        return [event for event in self.history(login, room) if event["type"] == "m.room.message"]

    # Inside.

    def _call(self, method: str, path: str, body: object = None, login: Login | None = None) -> dict[str, Any]:
        request = urllib.request.Request(self.url + path, method=method)
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        if login is not None:
            request.add_header("Authorization", f"Bearer {login.token}")
        try:
            with _http.open(request, timeout=CALL_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise CallFailed(f"{method} {path}", error.code, json.load(error)) from None

    def _write_config(self, messages_per_second: float, burst: float, session_s: int | None) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        generous = {"per_second": GENEROUS, "burst_count": GENEROUS}
        limits: dict[str, Any] = {
            "rc_message": {"per_second": messages_per_second, "burst_count": burst},
            "rc_registration": generous,
            "rc_login": {"address": generous, "account": generous, "failed_attempts": generous},
            "rc_joins": {"local": generous, "remote": generous},
            "rc_joins_per_room": generous,
            "rc_invites": {"per_room": generous, "per_user": generous, "per_issuer": generous},
            "rc_room_creation": generous,
        }
        listener = {
            "type": "http",
            "port": self.port,
            "bind_addresses": ["127.0.0.1"],
            "tls": False,
            "resources": [{"names": ["client"], "compress": False}],
        }
        config = {
            "server_name": SERVER_NAME,
            "listeners": [listener],
            "database": {"name": "sqlite3", "args": {"database": str(self.folder / "homeserver.db")}},
            "pid_file": str(self.folder / "homeserver.pid"),
            "media_store_path": str(self.folder / "media"),
            "signing_key_path": str(self.folder / "signing.key"),
            "log_config": str(self.folder / "logging.json"),
            "registration_shared_secret": self._secret,
            "macaroon_secret_key": self._secret,
            "form_secret": self._secret,
            "bcrypt_rounds": 4,
            "report_stats": False,
            "trusted_key_servers": [],
            "suppress_key_server_warning": True,
            "federation_domain_whitelist": [],
            "presence": {"enabled": False},
            "user_directory": {"enabled": False},
            **({} if session_s is None else {"session_lifetime": f"{session_s}s"}),
            **limits,
        }
        logging = {"version": 1, "handlers": {"console": {"class": "logging.StreamHandler"}}}
        logging["root"] = {"level": "WARNING", "handlers": ["console"]}
        seed = base64.b64encode(secrets.token_bytes(32)).decode().rstrip("=")
        (self.folder / "signing.key").write_text(f"ed25519 a_test {seed}\n")
        (self.folder / "logging.json").write_text(json.dumps(logging))
        self._config.write_text(json.dumps(config, indent=1))  # JSON is YAML


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    if sys.argv[1:] != ["install"]:
        sys.exit(f"usage: {INSTALL_COMMAND}")
    install()
