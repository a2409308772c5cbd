"""Imports point down only, inside the package they are relative, and each folder keeps to what it may touch."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LAYERS = ("ledger", "projections", "adapters", "lifecycle", "cli")
MAY_IMPORT = {
    "ledger": {"ledger"},
    "projections": {"projections", "ledger"},
    "adapters": {"adapters", "ledger"},
    "lifecycle": {"lifecycle", "adapters", "projections", "ledger"},
    "cli": {"cli", "lifecycle", "adapters", "projections", "ledger"},
}
IMPURE = {"time", "random", "secrets", "uuid", "datetime", "asyncio", "threading", "socket", "os", "subprocess"}
PURE_ADAPTERS = {
    *("telegram", "telegram_answers", "telegram_send", "telegram_text", "telegram_updates"),
    *("surface", "receiving", "text", "qa", "qa_inbound", "exchange", "checks"),
    *("matrix", "matrix_events", "matrix_history", "matrix_media", "matrix_sync", "matrix_incoming"),
}
"""Files of `adapters/` that open nothing and read no clock: the sans-I/O half."""


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def imported(path: Path, text: str | None = None) -> Iterator[tuple[int, str, ast.stmt]]:
    """(line, module as seen from the root of the package or of the interpreter, statement)."""
    here = path.relative_to(ROOT).with_suffix("").parts[:-1]
    for node in ast.walk(ast.parse(path.read_text() if text is None else text)):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield node.lineno, name.name, node
        elif isinstance(node, ast.ImportFrom):
            if node.level == 0:
                yield node.lineno, node.module or "", node
            else:
                base = here[: len(here) - node.level + 1]
                inner = ".".join((*base, *(node.module or "").split("."))).strip(".")
                for name in node.names:
                    yield node.lineno, f"{inner}.{name.name}".strip("."), node


def upward(path: Path, text: str | None = None) -> list[str]:
    layer = path.relative_to(ROOT).parts[0]
    return [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for line, module, node in imported(path, text)
        if isinstance(node, ast.ImportFrom)
        and node.level
        and (top := module.split(".")[0]) in LAYERS
        and top not in MAY_IMPORT[layer]
    ]


def absolute(path: Path, text: str | None = None) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for line, module, node in imported(path, text)
        if (isinstance(node, ast.Import) or node.level == 0) and module.split(".")[0] in {*LAYERS, "msgledger"}
    ]


def impure(path: Path, text: str | None = None) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}:{line} imports {module}"
        for line, module, node in imported(path, text)
        if (isinstance(node, ast.Import) or node.level == 0) and module.split(".")[0] in IMPURE
    ]


@pytest.mark.parametrize("path", sources(*LAYERS), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    assert upward(path) == []


@pytest.mark.parametrize("path", sources(*LAYERS), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_inside_the_package_are_relative(path: Path) -> None:
    """An absolute one would load a second copy of every class where the root is on `sys.path`."""
    assert absolute(path) == []


def test_no_file_anywhere_imports_a_folder_as_a_top_level_module() -> None:
    found = [line for path in sources("tests", "bench") for line in absolute(path) if " imports msgledger" not in line]
    assert found == []


def test_the_core_reads_no_clock_and_draws_no_chance() -> None:
    """CORE-5: what decides is pure; time, ids and chance are arguments."""
    core = [path for path in sources("ledger") if "store" not in path.parts]
    pure = core + [ROOT / "adapters" / f"{name}.py" for name in sorted(PURE_ADAPTERS)]
    assert [line for path in pure for line in impure(path)] == []


def test_the_store_knows_the_library_only_at_its_boundary() -> None:
    """`eventsourcing` costs time to import; only its own door may."""
    users = [
        path.name
        for path in sources(*LAYERS)
        if any(module.split(".")[0] == "eventsourcing" for _, module, _ in imported(path))
    ]
    assert set(users) <= {"apsw.py", "application.py", "datastore.py", "subscriptions.py", "transcoding.py"}


def test_what_goes_on_by_itself_knows_nothing_of_who_calls() -> None:
    """Of the files beside it, the dispatcher's folder may use what a plan is, and no more; and those stay few."""
    calling = sorted(path.stem for path in (ROOT / "lifecycle").glob("*.py") if path.stem != "__init__")
    assert len(calling) <= 6
    used = {
        module.split(".")[1]
        for path in sources("lifecycle/dispatch")
        for _, module, _ in imported(path)
        if module.startswith("lifecycle.")
    }
    assert used == {"dispatch", "plan"}


def test_each_check_sees_what_it_forbids() -> None:
    path = ROOT / "ledger" / "events.py"
    assert upward(path, "from ..lifecycle.send import Delivery")
    assert upward(path, "from ..cli import main")
    assert upward(ROOT / "ledger" / "store" / "x.py", "from ...adapters import calls")
    assert not upward(ROOT / "cli" / "main.py", "from ..lifecycle.send import Delivery")
    assert absolute(path, "import ledger.events")
    assert absolute(path, "from msgledger import Message")
    assert impure(path, "import time")
    assert not impure(path, "import msgspec")
