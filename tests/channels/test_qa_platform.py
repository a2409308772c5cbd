"""Our own platform is an instrument: what it records must be right, whatever happens to it."""

from __future__ import annotations

import http.client
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from msgledger.adapters.qa_platform import QaPlatform


class Lost(Exception):
    pass


def call(platform: QaPlatform, method: str, path: str, body: Any = None) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection(urlsplit(platform.url).netloc, timeout=5)
    try:
        connection.request(method, path, None if body is None else json.dumps(body))
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
        raise Lost(repr(error)) from error
    finally:
        connection.close()


def send(platform: QaPlatform, key: str, text: str = "hi") -> tuple[int, dict[str, Any]]:
    return call(platform, "POST", "/v1/messages", {"place": "p", "text": text, "key": key})


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[QaPlatform]:
    with QaPlatform.start(tmp_path) as platform:
        yield platform


def test_the_record_survives_a_kill(platform: QaPlatform) -> None:
    """G3: the truth outlives the platform, and a restarted one goes on in the same order under the same keys."""
    ids = [send(platform, f"k{index}")[1]["id"] for index in range(3)]
    platform.kill()
    assert [line["id"] for line in platform.accepted()] == ids
    with platform.record.open("ab") as record:
        record.write(b'{"order": 4, "torn')
    port = urlsplit(platform.url).port
    platform.restart()
    assert urlsplit(platform.url).port == port
    assert send(platform, "k1")[1] | {"duplicate": True} == send(platform, "k1")[1]
    send(platform, "k9")
    assert [line["order"] for line in platform.accepted()] == [1, 2, 3, 4]
    assert call(platform, "GET", "/v1/accepted")[1]["accepted"] == platform.accepted()
    assert len(platform.accepted(recognised=True)) == 6


def test_edits_deletes_and_look_ups(platform: QaPlatform) -> None:
    """Everything accepted is in the record, and a look-up shows it by key and by place."""
    first = send(platform, "k")[1]["id"]
    path = f"/v1/messages/{quote(str(first))}"
    assert call(platform, "PATCH", path, {"text": "new", "key": "e"})[0] == 200
    assert call(platform, "DELETE", f"{path}?key=d")[0] == 200
    assert call(platform, "PATCH", path, {"text": "x"})[1]["error"]["class"] == "not_found"
    assert call(platform, "DELETE", "/v1/messages/77")[0] == 404
    assert [line["action"] for line in platform.accepted()] == ["send", "edit", "delete"]
    assert [line["action"] for line in call(platform, "GET", "/v1/messages?key=e")[1]["messages"]] == ["edit"]
    assert len(call(platform, "GET", "/v1/messages?place=p&after=1")[1]["messages"]) == 2


def test_what_a_duplicate_gets(platform: QaPlatform) -> None:
    """CAP-6: each way of a real platform, and a copy carries the id of the first."""
    first = send(platform, "k")[1]["id"]
    platform.settings(on_duplicate="conflict_with_id")
    assert send(platform, "k")[1]["error"]["id"] == first
    platform.settings(on_duplicate="conflict")
    assert "id" not in send(platform, "k")[1]["error"]
    platform.settings(on_duplicate="accept_again")
    assert send(platform, "k")[1]["id"] != first
    platform.settings(on_duplicate="first_id", window_s=0.0)
    time.sleep(0.01)
    assert send(platform, "k")[1]["duplicate"] is False
    assert [line["duplicate_of"] for line in platform.accepted()] == [None, first, first]
    platform.settings(ids="uuid")
    assert len(send(platform, "other")[1]["id"]) == 36
    with pytest.raises(RuntimeError, match="unknown_setting"):
        platform.settings(colour="red")


@pytest.mark.parametrize("action", ["accept_drop", "accept_truncated", {"do": "accept_hang", "after_s": 0.1}])
def test_accepted_without_a_word(platform: QaPlatform, action: Any) -> None:
    """FAIL-9: it is in the record and the caller does not hear of it."""
    platform.script(action)
    with pytest.raises(Lost):
        send(platform, "k")
    assert [line["key"] for line in platform.accepted()] == ["k"]
    assert send(platform, "k")[1]["duplicate"] is True


def test_not_accepted(platform: QaPlatform) -> None:
    """FAIL-9: to the caller these look the same, and nothing is in the record."""
    for action in ("drop", {"do": "hang", "after_s": 0.05}):
        platform.script(action)
        with pytest.raises(Lost):
            send(platform, "k")
    platform.script({"do": "server_error", "accepted": False})
    assert send(platform, "k")[0] == 500
    assert platform.accepted() == []


def test_rules_match_and_end(platform: QaPlatform) -> None:
    """A rule fits by key, text, place, method and turn, as often as it says, and look-ups only where it says so."""
    platform.script("malformed", text="bad", nth=2)
    platform.script({"do": "reject", "class": "auth"}, times=2, key="a")
    assert send(platform, "1", "bad one")[0] == 200
    with pytest.raises(json.JSONDecodeError):
        send(platform, "2", "bad two")
    assert send(platform, "3", "bad three")[0] == 200
    assert call(platform, "GET", "/v1/messages?key=a")[0] == 200
    assert [send(platform, "a")[0] for _ in range(3)] == [401, 401, 200]
    platform.script("drop", times=-1, method="GET")
    with pytest.raises(Lost):
        call(platform, "GET", "/v1/messages?key=a")
    platform.clear_script()
    assert call(platform, "GET", "/v1/messages?key=a")[0] == 200


def test_its_own_limits(platform: QaPlatform) -> None:
    """FAIL-3: refusals with a code, so that a fallback can tell them apart."""
    assert send(platform, "k", "x" * 2001)[1]["error"]["code"] == "too_long"
    assert send(platform, "k", "")[1]["error"]["code"] == "empty"
    assert call(platform, "POST", "/v1/messages", {"text": "x"})[1]["error"]["code"] == "no_place"
    assert call(platform, "POST", "/v1/messages", [])[1]["error"]["code"] == "bad_json"
    assert call(platform, "GET", "/v1/nothing")[0] == 404


def test_concurrent_duplicates_are_accepted_once(platform: QaPlatform) -> None:
    """CAP-6: the deduplication itself has no race."""
    threads = [threading.Thread(target=send, args=(platform, "same")) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(platform.accepted()) == 1
    assert len(platform.requests()) == 20


def test_seeded_faults_repeat(tmp_path: Path) -> None:
    """SC-28: one seed, one sequence of faults."""

    def run(name: str) -> list[str]:
        folder = tmp_path / name
        folder.mkdir()
        seen: list[str] = []
        with QaPlatform.start(folder, faults="drop=0.3,error=0.2,rate=0.2", seed=7) as platform:
            for index in range(30):
                try:
                    seen.append(str(send(platform, f"k{index}")[0]))
                except Lost:
                    seen.append("lost")
        return seen

    first = run("a")
    assert first == run("b")
    assert set(first) == {"lost", "500", "429", "200"}


def test_it_ends_with_whoever_started_it(tmp_path: Path) -> None:
    """No process is left behind by a test that was killed: the platform ends with its standard input."""
    platform = QaPlatform.start(tmp_path)
    process = platform._process
    assert process is not None
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(5) == 0
    platform.stop()
    assert platform.pid is None


def test_a_platform_that_cannot_start_says_why(tmp_path: Path) -> None:
    with QaPlatform.start(tmp_path) as first:
        other = tmp_path / "other"
        other.mkdir()
        with pytest.raises(RuntimeError, match="in use"):
            QaPlatform.start(other, port=urlsplit(first.url).port or 0)
        assert first.pid is not None
        os.kill(first.pid, 0)
