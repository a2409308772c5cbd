"""Starting and stopping our own platform as a process of its own, for tests and the demo.

It ends only the process that it started, by its pid, and reads the truth from the record file, which stands whether the
platform lives or not.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

START_MAX_S: Final = 15.0
STOP_MAX_S: Final = 5.0


class QaPlatform:
    """`QaPlatform.start(folder)`; a context manager that stops it. The platform also ends when its starter dies."""

    def __init__(self, folder: Path, *, token: str = "", faults: str = "", seed: int = 0, port: int = 0) -> None:
        self.record = folder / "qa-accepted.jsonl"
        self.token = token
        self.url = ""
        self._folder, self._faults, self._seed, self._port = folder, faults, seed, port
        self._process: subprocess.Popen[bytes] | None = None
        self._settings: dict[str, Any] = {}

    @classmethod
    def start(
        cls, folder: Path | str, *, token: str = "", faults: str = "", seed: int = 0, port: int = 0
    ) -> QaPlatform:
        """Listens when this returns. `faults` as on the command line: `drop=0.1,rate=0.1`."""
        platform = cls(Path(folder), token=token, faults=faults, seed=seed, port=port)
        platform.restart()
        return platform

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"QaPlatform({self.url!r})"

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def restart(self) -> None:
        """Starts it where it does not run: same port, same record, same settings; rules are gone."""
        if self._process is not None and self._process.poll() is None:
            raise RuntimeError(f"the platform runs already, as process {self._process.pid}")
        self.kill()
        ready, log = self._folder / "qa-ready.json", self._folder / "qa-errors.log"
        ready.unlink(missing_ok=True)
        command = [sys.executable, "-P", "-m", "msgledger.adapters.qa_platform", "--until-eof"]
        command += ["--record", str(self.record), "--ready-file", str(ready), "--port", str(self._port)]
        command += ["--token", self.token] if self.token else []
        command += ["--faults", self._faults, "--seed", str(self._seed)] if self._faults else []
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors, cwd=self._folder
            )
        ends = time.monotonic() + START_MAX_S
        while not ready.exists():
            if self._process.poll() is not None or time.monotonic() > ends:
                self.kill()
                raise RuntimeError(f"the platform did not start: {log.read_text()[-500:]}")
            time.sleep(0.01)
        found = json.loads(ready.read_text())
        self.url, self._port = found["url"], found["port"]
        if self._settings:
            self._call("POST", "/v1/settings", self._settings)

    def accepted(self, *, recognised: bool = False) -> list[dict[str, Any]]:
        """Everything that became visible, in order, from the record; with `recognised` also what was deduplicated."""
        hidden = ("upload",) if recognised else ("upload", "recognised")
        return [line for line in self._lines() if line["action"] not in hidden]

    def uploads(self) -> list[dict[str, Any]]:
        """Every file that it took in, in order, whether a message showed it or not: id, name, type, sha256, size."""
        return [line for line in self._lines() if line["action"] == "upload"]

    def say(self, *events: dict[str, Any]) -> list[dict[str, Any]]:
        """Somebody writes to us; the events as they are delivered."""
        return self._call("POST", "/v1/say", {"events": list(events)})["events"]

    def inbound(self, **changes: Any) -> dict[str, Any]:
        """How what comes in is delivered, as `qa_inbox.FAULTS` has it."""
        return self._call("POST", "/v1/inbound", changes)

    def hook(self, url: str, secret: str) -> None:
        """Push what comes in there."""
        self._call("POST", "/v1/hook", {"url": url, "secret": secret})

    def pending(self) -> list[str]:
        """The ids of the events that are not acknowledged."""
        return self._call("GET", "/v1/inbound")["pending"]

    def deliveries(self) -> list[dict[str, Any]]:
        """The truth of what came in, in order: `event`, `delivered`, `pushed`, `acknowledged`."""
        record = self.record.with_name(f"{self.record.stem}-inbound.jsonl")
        raw = record.read_bytes()
        return [json.loads(line) for line in raw[: raw.rfind(b"\n") + 1].splitlines()]

    def _lines(self) -> list[dict[str, Any]]:
        if not self.record.exists():
            return []
        raw = self.record.read_bytes()
        return [json.loads(line) for line in raw[: raw.rfind(b"\n") + 1].splitlines()]

    def requests(self) -> list[dict[str, Any]]:
        """Every request on messages that this run of the platform has read: method, key, time."""
        return self._call("GET", "/v1/requests")["requests"]

    def script(self, action: str | dict[str, Any] = "accept", *, times: int = 1, **match: Any) -> None:
        """One more rule, e.g. `script("accept_drop", text="hello")` or `script({"do": "slow", "delay_s": 2}, nth=3)`.

        `times=-1` is for ever. Match by `key`, `text` (a part of it), `place`, `method`, `nth`.
        """
        self._call("POST", "/v1/script", {"match": match, "times": times, "action": action})

    def clear_script(self) -> None:
        self._call("DELETE", "/v1/script")

    def settings(self, **changes: Any) -> None:
        """`on_duplicate`, `window_s`, `lookup_lag_s`, `ids`, `text_max`, `complete`; kept over a restart."""
        self._settings |= changes
        self._call("POST", "/v1/settings", changes)

    def kill(self) -> None:
        """SIGKILL, by pid."""
        self._end(hard=True)

    def stop(self) -> None:
        self._end(hard=False)

    def _end(self, *, hard: bool) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if hard:
            process.kill()
        else:
            process.terminate()
        try:
            process.wait(STOP_MAX_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdin is not None:
            process.stdin.close()

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        """No proxy and no redirect: a plain connection to the loopback address."""
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=10)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            answer = connection.getresponse()
            found = json.loads(answer.read())
        finally:
            connection.close()
        if answer.status != 200:
            raise RuntimeError(f"the platform refused {method} {path}: {found}")
        return found
