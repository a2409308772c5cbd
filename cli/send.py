"""`msgledger send`: one message through a configured channel, recorded before it leaves."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, Literal

import click

from ..ledger.intent import Status
from ..ledger.limits import TEXT_MAX_BYTES
from ..ledger.message import Attachment, Format, Message, Relation, Reply, System, SystemReason, Target, TargetKind
from ..lifecycle.gateway import Gateway
from ..lifecycle.send import Delivery
from . import opening
from .base import INTERRUPTED, PROBLEMS, Command, setup
from .filters import span_s
from .output import emit, full, paint, say, when

RETRY = {
    "ledger": "the ledger owes it, do not repeat it: a gateway or `msgledger worker run` goes on with it",
    "person": "nobody can say whether it arrived: `msgledger intents explain` says why, `intents resolve` settles it",
    "caller": "it will not be sent; send anew where you still want it",
}
STOPPED = (
    "interrupted; what was recorded is owed and may go out without you:"
    " look with `msgledger intents list` before you send it again"
)


@click.command(cls=Command)
@click.option("--channel", required=True, metavar="NAME", help="A channel of the configuration.")
@click.option("--account", metavar="NAME", help="Where the channel has several.")
@click.option("--to", "target", required=True, metavar="ID", help="The platform's id of the chat.")
@click.option("--kind", type=click.Choice(["direct", "group", "channel", "thread"]), default="group", show_default=True)
@click.option("--space", metavar="ID", help="The workspace that the id belongs to.")
@click.option("--thread", metavar="ID")
@click.option("--text", help="The text. With -, or without it and without files, it is read from standard input.")
@click.option(
    "--attach",
    "files",
    multiple=True,
    metavar="FILE",
    type=click.Path(),
    help="A file that goes with it; repeat it for several. A copy is kept until the message has ended.",
)
@click.option("--format", "format_", type=click.Choice(["plain", "markdown", "html"]), default="plain")
@click.option("--reply-to", metavar="ID", help="The platform's id of the message that this answers.")
@click.option("--key", metavar="KEY", help="Idempotency: the same key and content return the intent that stands.")
@click.option("--session", metavar="KEY", help="The session that it belongs to.")
@click.option("--at-least-once", is_flag=True, help="Allow a marked copy where nobody knows whether the first arrived.")
@click.option("--unordered", is_flag=True, help="Wait for no earlier message of the chat.")
@click.option("--max-age", metavar="DURATION", help="Not sent later than this: 90s, 2h, 3d.")
@click.option("--max-attempts", type=click.IntRange(1, 100), metavar="N")
@click.option("--no-wait", is_flag=True, help="Return once it is durable.")
@click.option("--timeout", metavar="DURATION", help="How long to wait for an outcome; else one attempt's deadline.")
@click.argument("dash", metavar="[-]", required=False, type=click.Choice(["-"]))
def send(
    channel: str,
    account: str | None,
    target: str,
    kind: TargetKind,
    space: str | None,
    thread: str | None,
    text: str | None,
    files: tuple[str, ...],
    format_: Format,
    reply_to: str | None,
    key: str | None,
    session: str | None,
    at_least_once: bool,
    unordered: bool,
    max_age: str | None,
    max_attempts: int | None,
    no_wait: bool,
    timeout: str | None,
    dash: Literal["-"] | None,
) -> None:
    """Send one message, durably: it is in the ledger before anything leaves. Makes the ledger where there is none.

    Exit 0 when it was sent (with --no-wait: when it is recorded), 1 when not, 2 when it cannot be sent as it is.

    JSON: one object, the delivery: intent, key, status, receipt, hold, failure, reason, due_at, attempts, repeated,
    durable, retry. retry says who sends again: ledger, person, caller or null.

    \b
    Examples:
      msgledger send --channel matrix --to '!ops:example.org' --text "The build is green."
      msgledger send --channel matrix --to '!ops:example.org' --text "The report." --attach report.pdf
      make report | msgledger send --channel matrix --to '!ops:example.org' --key "report-$(date +%F)" -
    """
    if kind == "thread" and thread is None:
        raise click.UsageError("--kind thread needs --thread: say which one")
    if text is not None and text != "-" and dash is not None:
        raise click.UsageError("--text and - are two texts: give one")
    if text is None and dash is None and files:
        body = ""  # the files are the message
    else:
        body = text if text is not None and text != "-" else _from_input()
    relation: Relation = Reply(reply_to=reply_to, thread=thread) if reply_to is not None else System(SystemReason.CLI)
    message = Message.text(
        body,
        to=Target(kind, channel, target, space=space, thread=thread),
        relation=relation,
        format=format_,
        account=account,
        attachments=tuple(Attachment.of_file(file) for file in files),
    )
    options: dict[str, Any] = {
        "key": key,
        "session": session,
        "on_unknown": "at_least_once" if at_least_once else "hold",
        "ordered": not unordered,
        "wait": not no_wait,
        "max_age_s": None if max_age is None else span_s(max_age),
        "timeout_s": None if timeout is None else span_s(timeout),
    }
    if max_attempts is not None:
        options["max_attempts"] = max_attempts
    config = opening.config()
    made = config.channel(channel)
    try:
        delivery = asyncio.run(_send(Gateway(opening.ledger_path(config), [made]), message, options))
    except KeyboardInterrupt:
        click.echo(f"msgledger: {STOPPED}", err=True)
        sys.exit(INTERRUPTED)
    _tell(delivery)
    if delivery.status is not Status.SENT and not no_wait:
        sys.exit(PROBLEMS)


async def _send(gateway: Gateway, message: Message, options: dict[str, Any]) -> Delivery:
    async with gateway:
        return await gateway.send(message, **options)


def _from_input() -> str:
    """Standard input as text, bounded; the line end that an `echo` adds is not part of it."""
    raw = sys.stdin.buffer.read(TEXT_MAX_BYTES + 2)
    if len(raw) > TEXT_MAX_BYTES + 1:
        raise click.UsageError(f"the text on standard input is longer than {TEXT_MAX_BYTES} bytes: shorten it")
    try:
        return raw.decode("utf-8").removesuffix("\n")
    except UnicodeDecodeError as error:
        raise click.UsageError(f"the text on standard input is not UTF-8 (byte {error.start}): convert it") from None


def _tell(delivery: Delivery) -> None:
    if setup().json:
        shown = {name: getattr(delivery, name) for name in delivery.__struct_fields__ if name != "sender"}
        emit({**full(shown), "retry": delivery.retry})
        return
    repeated = "  (the key stood already: nothing new was recorded)" if delivery.repeated else ""
    click.echo(f"{delivery.intent}  {paint(delivery.status.value)}{repeated}")
    if delivery.receipt is not None:
        ids = ", ".join(delivery.receipt.platform_ids) or "the channel gives no ids"
        say(f"  receipt  {ids}")
    if delivery.failure is not None or delivery.reason is not None:
        failure = None if delivery.failure is None else delivery.failure.value
        say(f"  because  {', '.join(part for part in (delivery.reason, failure) if part)}")
    if delivery.due_at and delivery.status is Status.PENDING:
        say(f"  due      {when(delivery.due_at)}")
    if delivery.retry is not None:
        say(f"  next     {RETRY[delivery.retry]}")
