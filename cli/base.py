"""What all commands share before anything heavy is imported: the lazy groups, the global options, and how errors end.

It knows click and nothing of the ledger, so that `msgledger --version` costs next to nothing. An error leaves by one
door, in one line on standard error, with an exit code that scripts can rely on.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, NoReturn

import click

FINE: Final = 0
PROBLEMS: Final = 1
USAGE: Final = 2
UNREADABLE: Final = 3
INTERRUPTED: Final = 130


@dataclass
class Setup:
    """The global options of one run, wherever on the line they stood."""

    ledger: str | None = None
    config: str | None = None
    json: bool = False


def setup() -> Setup:
    """The options of the command that runs."""
    return click.get_current_context().ensure_object(Setup)


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value:
        setattr(context.ensure_object(Setup), parameter.name or "", value)


def global_options() -> list[click.Parameter]:
    """`--ledger`, `--config` and `--json`, taken before and behind a command's name."""
    return [
        click.Option(
            ["--ledger"],
            metavar="PATH",
            callback=_keep,
            expose_value=False,
            help="The ledger. Else MSGLEDGER_LEDGER, else what the configuration names.",
        ),
        click.Option(
            ["--config"],
            metavar="FILE",
            callback=_keep,
            expose_value=False,
            help="The configuration. Else MSGLEDGER_CONFIG, else ./msgledger.toml.",
        ),
        click.Option(["--json"], is_flag=True, callback=_keep, expose_value=False, help="JSON instead of text."),
    ]


class Command(click.Command):
    """A command that takes the global options behind its name too."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.params = [*self.params, *global_options()]


class Group(click.Group):
    """A group whose commands are imported when they are called. `lazy`: name to `module:attribute`, relative here."""

    command_class = Command

    def __init__(self, *arguments: Any, lazy: Mapping[str, str] | None = None, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._lazy = dict(lazy or {})
        self.params = [*self.params, *global_options()]

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self._lazy, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = self._lazy.get(cmd_name)
        if place is None:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = place.partition(":")
        return getattr(import_module(f".{module}", __package__), attribute)


class Root(Group):
    """The whole program: every error of every command ends here."""

    def invoke(self, ctx: click.Context) -> Any:
        """Whoever read us may have seen enough, as `head` does: that is no problem that was found."""
        try:
            found = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return FINE
        return found

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> NoReturn:
        code: object = FINE
        try:
            code = super().main(
                args=args,
                prog_name=prog_name or "msgledger",
                complete_var=complete_var,
                standalone_mode=False,
                windows_expand_args=windows_expand_args,
                **extra,
            )
        except click.exceptions.Exit as error:
            code = error.exit_code
        except click.Abort:
            click.echo("msgledger: interrupted; nothing more was done", err=True)
            code = INTERRUPTED
        except click.UsageError as error:
            where = error.ctx.command_path if error.ctx is not None else "msgledger"
            code = complain(f"{error.format_message().rstrip('.')}; see `{where} --help`", USAGE)
        except click.ClickException as error:
            code = complain(error.format_message(), USAGE)
        except Exception as error:
            from .failure import code_of

            known = code_of(error)
            if known is None:
                raise
            code = complain(str(error), known, error.__cause__)
        sys.exit(code if isinstance(code, int) else FINE)


def complain(text: str, code: int, cause: BaseException | None = None) -> int:
    """One line that says what, where and what to do, and one for each cause."""
    click.echo(f"msgledger: {_line(text)}", err=True)
    while cause is not None:
        click.echo(f"  caused by {type(cause).__name__}: {_line(str(cause))}", err=True)
        cause = cause.__cause__
    return code


def _line(text: str) -> str:
    """Control characters of a value that is quoted must not steer a terminal."""
    line = " ".join(text.split())
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in line)
