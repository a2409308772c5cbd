"""What reaches the screen: tables, JSON, times and durations. Colour only on a terminal, never with NO_COLOR.

Tables are drawn with rich where it is installed and somebody looks; piped, they are plain columns. `--json` prints
values with all their fields.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final, cast

import click
import msgspec

from ..ledger.events import Event

COLOURS: Final = {
    "pending": "yellow",
    "sending": "cyan",
    "committing": "cyan",
    "unknown_after_send": "magenta",
    "sent": "green",
    "failed": "red",
    "cancelled": "bright_black",
    "active": "green",
    "suspended": "magenta",
    "resume_pending": "yellow",
    "running": "cyan",
    "completed": "green",
    "dropped": "bright_black",
    "context": "bright_black",
    "ok": "green",
    "warn": "yellow",
    "problem": "red",
    "alive": "green",
    "dead": "red",
}
WIDTH_LEAST: Final = 50
WIDTH_PIPED: Final = 100


def colourful() -> bool:
    """Whether somebody looks at a terminal that may be coloured."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def unicode() -> bool:
    """Whether the output can take more than ASCII."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    try:
        "●─✓".encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def width() -> int:
    """Columns that a picture may take."""
    return max(WIDTH_LEAST, shutil.get_terminal_size((WIDTH_PIPED, 24)).columns)


def say(text: str = "") -> None:
    click.echo(safe(text))


def line(name: str, value: object) -> None:
    """A named value below a heading; nothing where there is none."""
    if value is not None:
        say(f"  {name:<15} {value}")


def safe(text: str) -> str:
    """What a ledger holds must not steer the terminal, nor fail where the terminal cannot show it."""
    shown = "".join(char if char.isprintable() or char == "\n" else f"\\x{ord(char):02x}" for char in text)
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    return shown.encode(encoding, "backslashreplace").decode(encoding)


def paint(word: str) -> str:
    """A status word in its colour, where colours are wanted."""
    colour = COLOURS.get(word)
    return click.style(word, fg=colour) if colour is not None and colourful() else word


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns with a head. Prints nothing where there is no row."""
    lines = [[safe("" if cell is None else str(cell)) for cell in row] for row in rows]
    if not lines:
        return
    if colourful() and importlib.util.find_spec("rich") is not None:
        _rich(head, lines)
        return
    wide = [max(len(line[column]) for line in [list(head), *lines]) for column in range(len(head))]
    for line in [list(head), *lines]:
        click.echo("  ".join(cell.ljust(size) for cell, size in zip(line, wide, strict=True)).rstrip())


def _rich(head: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for name in head:
        drawn.add_column(name, overflow="fold")
    for line in lines:
        drawn.add_row(*(Text(cell, style=COLOURS.get(cell, "")) for cell in line))
    Console().print(drawn)


def emit(value: Any) -> None:
    """One JSON value on one line, with all its fields."""
    click.echo(msgspec.json.encode(full(value)).decode())


def full(value: Any) -> Any:
    """As plain JSON values: structs with every field, also those at their defaults. An event stays as it is stored."""
    if isinstance(value, Event):
        return msgspec.to_builtins(value)
    if isinstance(value, msgspec.Struct):
        return {name: full(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return {str(key): full(one) for key, one in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [full(one) for one in cast("Sequence[Any]", value)]
    return value


def when(at: int | None) -> str:
    """UTC milliseconds for people, to the millisecond."""
    if at is None:
        return "-"
    found = datetime.fromtimestamp(at / 1000, UTC)
    return f"{found:%Y-%m-%d %H:%M:%S}.{at % 1000:03d}Z"


def lasting(ms: float) -> str:
    """A duration in the unit that fits."""
    if ms < 1_000:
        return f"{ms:.0f} ms"
    if ms < 60_000:
        return f"{ms / 1_000:.2f}".rstrip("0").rstrip(".") + " s"
    if ms < 3_600_000:
        minutes, seconds = divmod(round(ms / 1_000), 60)
        return f"{minutes} min" + (f" {seconds} s" if seconds else "")
    if ms < 172_800_000:
        hours, minutes = divmod(round(ms / 60_000), 60)
        return f"{hours} h" + (f" {minutes} min" if minutes else "")
    return f"{ms / 86_400_000:.1f} days"


def plural(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
