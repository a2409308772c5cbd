"""`msgledger channels`: what each channel may honestly promise, from the capabilities that contract tests check."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import click

from ..adapters.surface import Capabilities, Change
from ..ledger.errors import InvalidConfig
from . import opening
from .base import Command, setup
from .output import emit, full, lasting, say, table


class Shown(NamedTuple):
    name: str
    account: str
    kind: str
    capabilities: Capabilities


@click.command(cls=Command)
def channels() -> None:
    """What each configured channel may honestly promise; without a configuration, the kinds that are shipped.

    JSON: a line for each: {"name", "account", "kind", "promise", "capabilities"}.

    \b
    Example:
      msgledger --config msgledger.toml channels
    """
    config = opening.config()
    if config.channels:
        found: Iterable[Shown] = [
            Shown(name, channel.account, _kind(settings), channel.capabilities)
            for name, settings in config.channels.items()
            for channel in [config.channel(name)]
        ]
    else:
        found = shipped()
    if setup().json:
        for one in found:
            emit({**one._asdict(), "capabilities": full(one.capabilities), "promise": one.capabilities.promise()})
        return
    if not config.channels:
        say("No channel is configured. These kinds are shipped:")
        say()
    for one in found:
        say(f"{one.name}/{one.account} ({one.kind}): {one.capabilities.promise()}")
    say()
    table(HEAD, (_cells(one) for one in found))


def shipped() -> list[Shown]:
    """The kinds that a configuration can name, as they come."""
    from ..adapters.matrix import MATRIX
    from ..adapters.qa import QA
    from ..adapters.telegram import TELEGRAM

    return [
        Shown("qa", "default", "qa", QA),
        Shown("matrix", "@bot:example.org", "matrix", MATRIX),
        Shown("telegram", "123456", "telegram", TELEGRAM),
        Shown("your-own", "default", "python", Capabilities()),
    ]


HEAD = ("channel", "text", "deduplicates", "look-up", "edit", "delete", "threads", "files", "deadline", "settle")


def _kind(settings: Any) -> str:
    tag = settings.__struct_config__.tag
    if not isinstance(tag, str):
        raise InvalidConfig(f"{type(settings).__name__} has no kind")
    return tag


def _cells(one: Shown) -> list[object]:
    able = one.capabilities
    key, look = able.idempotency, able.reconcile
    return [
        f"{one.name}/{one.account}",
        f"{able.text.max} {able.text.unit}{', split' if able.text.chunking else ''}",
        "no" if key is None else f"{key.field}, {lasting(key.window_s * 1000)}, {key.evidence}",
        "no" if look is None else f"{look.kind}{', proves absence' if look.can_prove_absence else ''}, {look.evidence}",
        _change(able.edit),
        _change(able.delete),
        "yes" if able.threads else "no",
        able.attachments,
        lasting(able.deadline_s * 1000),
        lasting(able.settle_s * 1000),
    ]


def _change(change: Change | None) -> str:
    if change is None:
        return "no"
    return "yes" if change.window_s is None else f"for {lasting(change.window_s * 1000)}"
