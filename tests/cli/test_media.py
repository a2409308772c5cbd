"""Files on the command line: attaching them, seeing what is kept, and hearing what is missing."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest
from msgledger.adapters.qa_process import QaPlatform

from .kit import normal, run

pytestmark = pytest.mark.usefixtures("config")


def send(*more: str | Path) -> tuple[int, str, str]:
    done = run("send", "--channel", "qa", "--to", "files", *more)
    return done.code, done.out, done.err


def kept(folder: Path) -> list[Path]:
    media = folder / "own.db.d" / "media"
    return sorted(path for path in media.rglob("*") if path.is_file()) if media.exists() else []


def doctor(*more: str) -> list[dict[str, str]]:
    lines = [json.loads(line) for line in run("doctor", "--json", *more).lines]
    return [line for line in lines if line["what"] == "files"]


def test_files_go_with_a_text_or_alone(platform: QaPlatform, tmp_path: Path) -> None:
    """SC-40, SC-42, MSG-1: each is uploaded, has its receipt, and is kept no longer."""
    one, two = tmp_path / "plot.png", tmp_path / "data.csv"
    one.write_bytes(b"an image")
    two.write_bytes(b"a,b\n1,2\n")
    code, out, err = send("--text", "both", "--attach", one, "--attach", two)
    assert (code, err) == (0, "")
    assert out.count(",") == 2, "three ids"
    text, image, table = platform.accepted()[-3:]
    assert (text["text"], text["media"]) == ("both", None)
    assert (image["media"]["kind"], image["media"]["type"]) == ("image", "image/png")
    assert table["media"]["sha256"] == sha256(b"a,b\n1,2\n").hexdigest()
    assert send("--attach", two)[0] == 0
    assert (platform.accepted()[-1]["text"], platform.accepted()[-1]["media"]["name"]) == ("", "data.csv")
    assert kept(tmp_path) == []


def test_a_file_that_is_not_there(platform: QaPlatform, tmp_path: Path) -> None:
    """SC-40: exit 2, the path and the way out, nothing recorded."""
    count = len(platform.accepted())
    code, out, err = send("--text", "x", "--attach", tmp_path / "gone.pdf")
    assert (code, out) == (2, "")
    assert f"{tmp_path / 'gone.pdf'} is not there: check the path of the attachment" in err
    assert run("intents", "list", "-c").out.strip() == "0"
    assert len(platform.accepted()) == count


def test_what_is_kept_is_shown_without_its_name(platform: QaPlatform, tmp_path: Path) -> None:
    """SC-40: size and digest are facts, the name is content; doctor counts, and hears a missing or damaged copy."""
    source = tmp_path / "secret-plan.pdf"
    source.write_bytes(b"a plan")
    platform.script({"do": "reject", "class": "invalid_payload"}, place="files", times=-1)
    code, out, _ = send("--attach", source)
    assert code == 1
    intent = out[:36]
    (copy,) = kept(tmp_path)
    shown = normal(run("intents", "show", intent).out)
    assert f"  file            6 bytes, {copy.name}\n" in shown
    assert "secret-plan" not in shown
    assert "  unit 0          media secret-plan.pdf\n" in run("intents", "show", intent, "--content").out
    assert str(tmp_path) not in run("intents", "show", intent, "--content").out
    found = [{"level": "ok", "what": "files", "found": "1 file kept, 0.0 MiB; 0 that nothing needs", "do": None}]
    assert doctor() == doctor("--deep") == found
    copy.write_bytes(b"a p1an")
    assert [line["level"] for line in doctor()] == ["ok"], "measured only"
    assert "other content" in doctor("--deep")[0]["found"]
    copy.rename(copy.with_name("f" * 64))
    missing, total = doctor()
    assert (missing["level"], total["found"]) == (
        "problem",
        "1 file kept, 0.0 MiB; 1 that nothing needs, which a gateway sweeps",
    )
    assert "is not there" in missing["found"] and "media_lost" in str(missing["do"])
    assert intent in missing["found"]
