"""GUARANTEES.md tells the truth: each guarantee names tests that are there and cite it, and none is missing."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| (G\d+) \| (.+?) \| (.+) \|$", re.MULTILINE)


def stated(page: str) -> dict[str, list[str]]:
    """Guarantee -> the test files it names."""
    return {row: re.findall(r"`(tests/[\w/]+\.py)`", shown) for row, _, shown in ROW.findall(page)}


def test_each_guarantee_names_tests_that_cite_it() -> None:
    page = stated((ROOT / "GUARANTEES.md").read_text())
    wrong = [
        f"{row}: {name}"
        for row, names in page.items()
        for name in names
        if not (ROOT / name).is_file() or not re.search(rf"\b{row}\b", (ROOT / name).read_text())
    ]
    assert wrong == []
    assert [row for row, names in page.items() if not names] == []


def test_the_page_and_the_behaviour_rows_agree() -> None:
    rows = set(re.findall(r"^### (G\d+)", (ROOT / "docs/behaviour/guarantees.md").read_text(), re.MULTILINE))
    assert set(stated((ROOT / "GUARANTEES.md").read_text())) == rows


def test_a_row_is_read_as_it_is_written() -> None:
    row = "G" + "99"
    assert stated(f"| {row} | It holds. | `tests/a/test_b.py`, and more |") == {row: ["tests/a/test_b.py"]}
