"""What every verb that changes history asks for: a reason, the count first, and a yes. Repeating it changes nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import click

from ..ledger.errors import NotPossible
from ..ledger.limits import REASON_MAX_CHARS
from ..ledger.store.store import Store
from . import opening
from .base import PROBLEMS
from .output import plural

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
NOBODY: Final = "nobody answers on standard input: add --yes"


def _reason(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if not value.strip():
        raise click.UsageError("--reason is empty: say why, it stays in the ledger")
    if len(value) > REASON_MAX_CHARS:
        raise click.UsageError(f"--reason has {len(value)} characters, the most is {REASON_MAX_CHARS}: shorten it")
    return value


def decisive(argument: str) -> Callable[[F], F]:
    """The argument (ids, by any unique prefix) and the options of a verb that changes history."""

    def decorate(command: F) -> F:
        command = click.option("--yes", is_flag=True, help="Do not ask.")(command)
        reason = click.option("--reason", required=True, callback=_reason, help="Why: it stays in the ledger.")
        return reason(click.argument(argument, metavar="ID...", nargs=-1, required=True)(command))

    return decorate


def each(
    prefixes: Sequence[str],
    named: Callable[[Store, str], str],
    one: Callable[[Store, str], T],
    refused: Callable[[str, NotPossible], T],
    tell: Callable[[T], None],
    *,
    noun: str,
    will: str,
    yes: bool,
) -> None:
    """Name all of them first, show the count, ask, then decide one by one. Exit 1 where one was not possible."""
    with opening.writing(opening.config()) as store:
        streams = list(dict.fromkeys(named(store, prefix) for prefix in prefixes))
        click.echo(f"{plural(len(streams), noun)} {will}", err=True)
        if not yes and not _agreed():
            click.echo("nothing was changed", err=True)
            sys.exit(PROBLEMS)
        problems = False
        for stream in streams:
            try:
                tell(one(store, stream))
            except NotPossible as error:
                problems = True
                tell(refused(stream, error))
    if problems:
        sys.exit(PROBLEMS)


def _agreed() -> bool:
    """The answer of whoever can be asked; where nobody can, it is a usage error."""
    try:
        return click.confirm("Go on?", err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise click.UsageError(NOBODY) from None
