"""Crabline's servers for the tests: an independent Matrix server here, and what starts any of them, on loopback only.

    python tests/counterparts/crabline.py install

puts it into `.venv-counterparts/crabline` (a few seconds and 25 MB, once; needs node and npm). It starts in a fraction
of Synapse's time and does less: `differences.py` says what. Nothing here uses msgledger, and all of it is in memory.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any, Self

REQUIREMENT = "@openclaw/crabline@0.1.27"
FOLDER = Path(__file__).resolve().parents[2] / ".venv-counterparts" / "crabline"
INSTALL_COMMAND = "python tests/counterparts/crabline.py install"
START_S = 20.0
STOP_S = 10.0
CALL_S = 20.0
SOMEBODY = "@somebody:matrix.test"

_marker = FOLDER / "installed.txt"
_program = FOLDER / "node_modules" / ".bin" / "crabline"
_http = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def installed() -> bool:
    """Whether this very version was installed to the end, and there is a node to run it."""
    return bool(shutil.which("node")) and _marker.exists() and _marker.read_text() == REQUIREMENT


def install() -> None:
    """Makes the folder; does nothing where it stands already. It writes no lock file and runs no package's script."""
    started = time.monotonic()
    if not installed():
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir(parents=True)
        (FOLDER / "package.json").write_text(json.dumps({"private": True}))
        quiet = ["--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        subprocess.run(["npm", "install", *quiet, REQUIREMENT], cwd=FOLDER, check=True)
        _marker.write_text(REQUIREMENT)
    print(f"{REQUIREMENT} is in {FOLDER} ({time.monotonic() - started:.1f} s)")


class Server:
    """One of its servers, with one bot. What it knows dies with it."""

    provider = ""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = self.token = ""
        self.port = 0
        self._admin = ""
        self._process: subprocess.Popen[bytes] | None = None

    def _ready(self, said: dict[str, Any]) -> None:
        """Takes in what the server says of itself."""
        raise NotImplementedError

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> None:
        """Starts it unless it runs, and returns when it has said where it listens."""
        if self.pid is not None:
            return
        ready = self.folder / "ready.json"
        ready.unlink(missing_ok=True)
        with (self.folder / "crabline.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(str(_program), "--json", "serve", self.provider),
                    *("--ready-file", str(ready), "--recorder", str(self.folder / "recorder.jsonl")),
                ],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={"PATH": os.environ.get("PATH", ""), "HOME": str(self.folder)},
            )
        until = time.monotonic() + START_S
        while time.monotonic() < until and self.pid is not None:
            if ready.exists() and ready.stat().st_size:
                said = json.loads(ready.read_text())
                self.url, self._admin = said["baseUrl"], said["adminToken"]
                self.port = int(self.url.rpartition(":")[2])
                self._ready(said)
                return
            time.sleep(0.02)
        self.stop()
        raise RuntimeError(f"Crabline did not start:\n{(self.folder / 'crabline.log').read_text()[-4000:]}")

    def stop(self) -> None:
        """SIGTERM, and SIGKILL where that is not enough."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _call(self, path: str, body: object, **headers: str) -> dict[str, Any]:
        request = urllib.request.Request(self.url + path, headers=headers)
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        with _http.open(request, timeout=CALL_S) as answer:
            return json.load(answer)


class Crabline(Server):
    """Its Matrix server, with one bot on one device."""

    provider = "matrix"
    user_id = device_id = ""

    def _ready(self, said: dict[str, Any]) -> None:
        self.user_id, self.device_id, self.token = said["botUserId"], said["deviceId"], said["accessToken"]

    def create_room(self) -> str:
        """A new room, which somebody else opens by saying something in it."""
        id = f"!{secrets.token_hex(8)}:matrix.test"
        self.say(id, "hello")
        return id

    def say(self, room: str, text: str) -> None:
        """Somebody says something in that room."""
        told = {"roomId": room, "senderId": SOMEBODY, "text": text}
        self._call("/crabline/matrix/inbound", told, Authorization=f"Bearer {self._admin}")

    def messages(self, login: object, room: str) -> list[dict[str, Any]]:
        """The bot's `m.room.message` events of the room, oldest first, as a client that has just come hears them."""
        said = self._call("/_matrix/client/v3/sync", None, Authorization=f"Bearer {self.token}")
        events = said["rooms"]["join"][room]["timeline"]["events"]
        return [one for one in events if one["type"] == "m.room.message" and one["sender"] == self.user_id]


if __name__ == "__main__":
    if sys.argv[1:] != ["install"]:
        sys.exit(f"usage: {INSTALL_COMMAND}")
    install()
