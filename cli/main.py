"""`msgledger`: the commands by name. Each is imported when it is called, never before."""

from __future__ import annotations

import click

from ..version import __version__
from .base import Root

COMMANDS = {
    "send": "send:send",
    "worker": "worker:worker",
    "intents": "intents:intents",
    "inbound": "inbound:inbound_",
    "sessions": "sessions:sessions",
    "workers": "workers:workers",
    "channels": "channels:channels",
    "rebuild": "rebuild:rebuild",
    "doctor": "doctor:doctor",
    "demo": "demo:demo",
}


@click.group(cls=Root, lazy=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="msgledger %(version)s")
def main() -> None:
    """An event-sourced message ledger for chat and agent gateways.

    Every intent to send is durable before anything leaves, every attempt and receipt is an event, and no outcome is
    ever guessed. These commands show what happened, and let a person decide where only a person can.

    Exit codes: 0 fine, 1 found problems, 2 wrong usage, 3 the ledger cannot be read or written. All times are UTC.

    \b
    Examples:
      msgledger demo
      msgledger --ledger gateway.db intents list --owed
      msgledger --config /etc/msgledger.toml worker run
    """
