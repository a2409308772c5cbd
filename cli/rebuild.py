"""`msgledger rebuild`: the views made anew from the events. It changes no event, and others may go on meanwhile."""

from __future__ import annotations

import sys

import click

from . import opening
from .base import PROBLEMS, Command, setup
from .output import emit, plural, say


@click.command(cls=Command)
def rebuild() -> None:
    """Make every view anew from the events, and remove rows that no event stands behind. Exit 1 where a stream is held.

    Nothing is lost if it is interrupted: run it again.

    JSON: one object: {"streams", "events", "held": [{"stream", "reason"}], "seconds"}.

    \b
    Example:
      msgledger --ledger gateway.db rebuild
    """
    shown = sys.stderr.isatty() and not setup().json

    def progress(streams: int, events: int) -> None:
        if shown:
            click.echo(f"\r{plural(streams, 'stream')}, {plural(events, 'event')}", err=True, nl=False)

    with opening.writing(opening.config()) as store:
        report = store.rebuild(progress)
    if shown:
        click.echo("\r\x1b[K", err=True, nl=False)
    if setup().json:
        held = [{"stream": one.stream, "reason": one.reason} for one in report.held]
        emit({"streams": report.streams, "events": report.events, "held": held, "seconds": report.seconds})
    else:
        streams, events = plural(report.streams, "stream"), plural(report.events, "event")
        say(f"rebuilt from {streams}, {events} in {report.seconds:.2f} s; {len(report.held)} held")
        for one in report.held:
            say(f"  held  {one.reason}")
    if report.held:
        sys.exit(PROBLEMS)
