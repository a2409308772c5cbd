"""The house rules that a reader relies on, as tests: sizes, docstrings, bounds with names, nothing left lying about."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("ledger", "projections", "adapters", "lifecycle", "cli")
LINES_MAX = 400


def tracked() -> list[Path]:
    """The files of the project: those git knows or would add; in an unpacked archive, all of them."""
    try:
        found = subprocess.run(
            ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        return [path for path in ROOT.rglob("*") if path.is_file() and ".venv" not in path.relative_to(ROOT).parts[0]]
    return [ROOT / name for name in found if (ROOT / name).is_file()]


def package() -> list[Path]:
    return sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("path", package(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_is_one_idea_that_says_what_it_is(path: Path) -> None:
    text = path.read_text()
    assert ast.get_docstring(ast.parse(text)), "a module opens with what it is for"
    assert len(text.splitlines()) <= LINES_MAX


def test_nothing_is_left_open_in_the_code() -> None:
    words = re.compile(r"\b(TODO|FIXME|XXX|HACK|NotImplementedError)\b")
    assert [str(path) for path in package() if words.search(path.read_text())] == []


def test_folders_and_their_packages_agree() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    listed = set(settings["tool"]["setuptools"]["packages"])
    there = {"msgledger"} | {
        "msgledger." + str(path.parent.relative_to(ROOT)).replace("/", ".")
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("__init__.py")
    }
    assert listed == there


def test_the_core_install_stays_small() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    names = {re.split(r"[<>=~\[ ]", line)[0] for line in settings["project"]["dependencies"]}
    assert names == {"apsw", "click", "eventsourcing", "msgspec"}
    page = (ROOT / "ARCHITECTURE.md").read_text()
    extras = settings["project"]["optional-dependencies"]
    every = names | {re.split(r"[<>=~\[ ]", line)[0] for lines in extras.values() for line in lines}
    assert [name for name in sorted(every) if f"`{name}`" not in page] == [], "each dependency has its reason there"


def test_no_registry_is_recorded() -> None:
    address = re.compile(r"index-url|extra-index|\"resolved\": *\"http|registry *= *\"?http")
    files = [path for path in tracked() if path.suffix in {".toml", ".json", ".cfg", ".npmrc", ".lock", ".txt", ".ini"}]
    assert [str(path) for path in files if address.search(path.read_text(errors="replace"))] == []
    assert "uv.lock" not in {path.name for path in tracked()}


def test_the_public_face_is_what_it_names() -> None:
    import msgledger

    for name in msgledger.__all__:
        assert getattr(msgledger, name) is not None
    tree = ast.parse((ROOT / "__init__.py").read_text())
    typed = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.If)
        for inner in node.body
        if isinstance(inner, ast.ImportFrom)
        for alias in inner.names
    }
    assert typed | {"__version__"} == set(msgledger.__all__), "what type checkers see is what is there"


def test_the_map_of_folders_is_complete() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    missing = [
        str(path.relative_to(ROOT)) for path in package() if path.stem != "__init__" and f"`{path.name}`" not in page
    ]
    assert missing == [], "ARCHITECTURE.md names every file of the package"


def test_each_crash_point_is_used_once() -> None:
    from msgledger.ledger.store.crash import POINTS

    used = [name for path in package() for name in re.findall(r'crash_point\("([^"]+)"\)', path.read_text())]
    assert sorted(set(used)) == sorted(POINTS)
    assert len(set(POINTS)) == len(POINTS)
