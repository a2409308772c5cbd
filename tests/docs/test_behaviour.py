"""The rows of docs/behaviour and the tests of this repository speak of the same things.

A row is stated in a topic file once a test shows it, and waits in todo.md until then. Tests cite rows in docstrings
and comments, as docs/behaviour/README.md describes; code and other strings are never read as citations.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
BEHAVIOUR = ROOT / "docs" / "behaviour"
PARTS = ("inbound and sessions", "live previews", "audit and operators", "laboratory", "more channels")
ANSWERS = ("answered: ", "not applicable: ")


class Family(NamedTuple):
    name: str
    rows: tuple[str, ...]
    file: str


class Entry(NamedTuple):
    row: str
    name: str
    text: str


def table(text: str) -> list[list[str]]:
    """The cells of each line below the head of a document's only table."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def expand(span: str) -> tuple[str, ...]:
    """`XY-01 to XY-03` gives three ids with two digits each, `XY-1` only itself."""
    first, _, last = span.partition(" to ")
    stem = first.rstrip("0123456789")
    low = first.removeprefix(stem)
    high = last.removeprefix(stem) if last else low
    return tuple(f"{stem}{number:0{len(low)}}" for number in range(int(low), int(high) + 1))


def families(readme: str) -> dict[str, Family]:
    return {name: Family(name, expand(span), file) for name, span, file, _ in table(readme)}


def entries(topic: str) -> list[Entry]:
    """Every `### ID Name` with the text up to the next heading; a heading of another form comes out incomplete."""
    blocks = [block.partition("\n") for block in re.split(r"^### ", topic, flags=re.M)[1:]]
    heads = [(head.partition(" "), re.split(r"^#", body, maxsplit=1, flags=re.M)[0]) for head, _, body in blocks]
    return [Entry(row, name.strip(), body.strip()) for (row, _, name), body in heads]


def citations(source: str, known: dict[str, Family]) -> set[str]:
    """The ids in the docstrings and comments of Python source, whether or not such a row exists."""
    stems = {family.rows[0].rstrip("0123456789") for family in known.values()}
    pattern = re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, sorted(stems)))})\d+\b")
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    prose = [ast.get_docstring(node) or "" for node in ast.walk(ast.parse(source)) if isinstance(node, documented)]
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    prose += [token.string for token in tokens if token.type == tokenize.COMMENT]
    return {row for text in prose for row in pattern.findall(text)}


FAMILIES = families((BEHAVIOUR / "README.md").read_text(encoding="utf-8"))
TOPICS = sorted({family.file for family in FAMILIES.values()} - {"todo.md"})
ENTRIES = [(file, entry) for file in TOPICS for entry in entries((BEHAVIOUR / file).read_text(encoding="utf-8"))]
STATED = {entry.row for _, entry in ENTRIES}
TODO_ROWS = table((BEHAVIOUR / "todo.md").read_text(encoding="utf-8"))
TODO = {row for row, *_ in TODO_ROWS}


def cited() -> dict[str, list[str]]:
    """Each cited id with the test files that cite it."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for row in citations(path.read_text(encoding="utf-8"), FAMILIES):
            found.setdefault(row, []).append(str(path.relative_to(ROOT)))
    return found


def test_every_row_that_a_test_cites_is_stated() -> None:
    strays = {row: files for row, files in sorted(cited().items()) if row not in STATED}
    assert not strays, f"cited, but not stated in a topic file (todo.md, or no such row): {strays}"


def test_every_stated_row_is_cited_by_a_test() -> None:
    shown = cited().keys()
    missing = [entry.row for _, entry in ENTRIES if entry.row not in shown]
    assert not missing, f"{len(missing)} rows are stated, but no test cites them: {' '.join(missing)}"


def test_no_row_is_both_stated_and_to_do() -> None:
    assert not STATED & TODO, f"stated and in todo.md: {sorted(STATED & TODO)}"


def test_every_family_is_whole_and_no_row_is_unknown() -> None:
    rows = {row for family in FAMILIES.values() for row in family.rows}
    assert not rows - STATED - TODO, f"neither stated nor in todo.md: {sorted(rows - STATED - TODO)}"
    assert not (STATED | TODO) - rows, f"outside every range of README.md: {sorted((STATED | TODO) - rows)}"


def test_every_row_has_one_place_and_says_something() -> None:
    places = Counter([entry.row for _, entry in ENTRIES] + [row for row, *_ in TODO_ROWS])
    twice = [row for row, count in places.items() if count > 1]
    assert not twice, f"written twice: {twice}"
    homes = {row: family.file for family in FAMILIES.values() for row in family.rows}
    astray = [f"{entry.row} in {file}" for file, entry in ENTRIES if homes.get(entry.row) != file]
    assert not astray, f"not in the file that README.md names for the family: {astray}"
    silent = [entry.row for _, entry in ENTRIES if not (entry.name and entry.text)]
    assert not silent, f"without a name or a text: {silent}"
    unplanned = [cells for cells in TODO_ROWS if len(cells) != 3 or not all(cells)]
    unplanned += [cells for cells in TODO_ROWS if cells[-1] not in PARTS and not cells[-1].startswith(ANSWERS)]
    assert not unplanned, f"lines of todo.md without a known part or an answer: {unplanned}"


SAMPLE = families("| family | rows |\n| - | - |\n| SC | SC-08 to SC-10 | s.md | x |\n| R | R1 to R2 | p.md | x |\n")
SAMPLE_TEST = '''"""Module: SC-08."""
NAME = "SC-10"  # R2, and XSC-11 is no row
def test_R1() -> None:
    """SC-8 and R99 do not exist; SC-9..10 is no range."""
    assert "R1"
'''


def test_ranges_keep_their_digits() -> None:
    assert SAMPLE["SC"] == Family("SC", ("SC-08", "SC-09", "SC-10"), "s.md")
    assert (SAMPLE["R"].rows, expand("WM-1")) == (("R1", "R2"), ("WM-1",))


def test_citations_are_docstrings_and_comments_only() -> None:
    assert citations(SAMPLE_TEST, SAMPLE) == {"SC-08", "SC-8", "SC-9", "R2", "R99"}


def test_entries_end_at_the_next_heading_and_show_what_they_lack() -> None:
    topic = "# T\nintro\n### R1 One\ntext\nmore\n## R: part\nnot R1\n### R2\n### R3 Empty\n"
    assert entries(topic) == [Entry("R1", "One", "text\nmore"), Entry("R2", "", ""), Entry("R3", "Empty", "")]
