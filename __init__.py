"""msgledger: an event-sourced message ledger for chat and agent gateways.

    async with msgledger.open("ledger.db", channels=[telegram]) as gateway:
        delivery = await gateway.send(Message.text("The build is green.", to=Target.group("telegram", "ops")))

What is named in `__all__` is the public face. Everything is imported when it is first used, so that importing the
package costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from .adapters.callable import CallableChannel
    from .adapters.external import External, NoSend
    from .adapters.matrix import MatrixChannel
    from .adapters.receiving import Ignored, Incoming, Intake, Taken
    from .adapters.surface import (
        Capabilities,
        Change,
        Channel,
        Idempotency,
        Lookup,
        RenderContext,
        SendContext,
        TextLimit,
    )
    from .adapters.telegram import TelegramChannel
    from .adapters.web import web_app
    from .adapters.webhook import webhook
    from .ledger.dossier import Dossier
    from .ledger.echo import BotPolicy
    from .ledger.errors import (
        DeliveryFailed,
        IdempotencyConflict,
        InvalidMedia,
        InvalidMessage,
        InvalidQuery,
        LaneBusy,
        LedgerError,
        NoSuchIntent,
        NoSuchStream,
        NotPossible,
        StoreUnavailable,
        UnknownChannel,
        UnroutableSource,
        WriteUncertain,
    )
    from .ledger.intent import Status
    from .ledger.message import (
        Attachment,
        Body,
        Broadcast,
        Followup,
        Message,
        Receipt,
        ReceiptPart,
        RenderedBatch,
        RenderedUnit,
        Reply,
        System,
        SystemReason,
        Target,
    )
    from .ledger.origin import Origin
    from .ledger.outcome import Accepted, FailureClass, NotDispatched, NotSent, Rejected, Sent, Unknown, Unresolved
    from .ledger.safe import check_session_id, check_session_key
    from .ledger.session import SessionPolicy
    from .ledger.source import SessionSource
    from .lifecycle.bridging.claims import Attempting
    from .lifecycle.bridging.needs import BridgeCheck, bridge_checks
    from .lifecycle.bridging.outcome import BridgeOutcome
    from .lifecycle.bridging.turn import Bridge
    from .lifecycle.gateway import Gateway, open
    from .lifecycle.inbound.context import Inbound
    from .lifecycle.inbound.route import SessionContext
    from .lifecycle.reads import Reading, reading
    from .lifecycle.send import Delivery, Sending

_FACE = {
    "CallableChannel": ".adapters.callable",
    "web_app": ".adapters.web",
    "webhook": ".adapters.webhook",
    "MatrixChannel": ".adapters.matrix",
    "Ignored": ".adapters.receiving",
    "Incoming": ".adapters.receiving",
    "Intake": ".adapters.receiving",
    "Taken": ".adapters.receiving",
    "External": ".adapters.external",
    "NoSend": ".adapters.external",
    "Capabilities": ".adapters.surface",
    "Change": ".adapters.surface",
    "Channel": ".adapters.surface",
    "Idempotency": ".adapters.surface",
    "Lookup": ".adapters.surface",
    "RenderContext": ".adapters.surface",
    "SendContext": ".adapters.surface",
    "TextLimit": ".adapters.surface",
    "TelegramChannel": ".adapters.telegram",
    "Dossier": ".ledger.dossier",
    "DeliveryFailed": ".ledger.errors",
    "IdempotencyConflict": ".ledger.errors",
    "InvalidMedia": ".ledger.errors",
    "InvalidMessage": ".ledger.errors",
    "InvalidQuery": ".ledger.errors",
    "LaneBusy": ".ledger.errors",
    "LedgerError": ".ledger.errors",
    "NoSuchIntent": ".ledger.errors",
    "NoSuchStream": ".ledger.errors",
    "NotPossible": ".ledger.errors",
    "StoreUnavailable": ".ledger.errors",
    "UnknownChannel": ".ledger.errors",
    "UnroutableSource": ".ledger.errors",
    "WriteUncertain": ".ledger.errors",
    "Status": ".ledger.intent",
    "BotPolicy": ".ledger.echo",
    "Attachment": ".ledger.message",
    "Body": ".ledger.message",
    "Broadcast": ".ledger.message",
    "Followup": ".ledger.message",
    "Message": ".ledger.message",
    "Origin": ".ledger.origin",
    "Receipt": ".ledger.message",
    "ReceiptPart": ".ledger.message",
    "RenderedBatch": ".ledger.message",
    "RenderedUnit": ".ledger.message",
    "Reply": ".ledger.message",
    "System": ".ledger.message",
    "SystemReason": ".ledger.message",
    "Target": ".ledger.message",
    "Accepted": ".ledger.outcome",
    "FailureClass": ".ledger.outcome",
    "NotDispatched": ".ledger.outcome",
    "NotSent": ".ledger.outcome",
    "Rejected": ".ledger.outcome",
    "Sent": ".ledger.outcome",
    "Unknown": ".ledger.outcome",
    "Unresolved": ".ledger.outcome",
    "check_session_id": ".ledger.safe",
    "check_session_key": ".ledger.safe",
    "SessionPolicy": ".ledger.session",
    "SessionSource": ".ledger.source",
    "Bridge": ".lifecycle.bridging.turn",
    "BridgeOutcome": ".lifecycle.bridging.outcome",
    "Attempting": ".lifecycle.bridging.claims",
    "BridgeCheck": ".lifecycle.bridging.needs",
    "bridge_checks": ".lifecycle.bridging.needs",
    "Gateway": ".lifecycle.gateway",
    "open": ".lifecycle.gateway",
    "Inbound": ".lifecycle.inbound.context",
    "SessionContext": ".lifecycle.inbound.route",
    "Reading": ".lifecycle.reads",
    "reading": ".lifecycle.reads",
    "Delivery": ".lifecycle.send",
    "Sending": ".lifecycle.send",
}
"""Where each public name lives."""

__all__ = [
    "Accepted",
    "Attachment",
    "Attempting",
    "Body",
    "BotPolicy",
    "Bridge",
    "BridgeCheck",
    "BridgeOutcome",
    "Broadcast",
    "CallableChannel",
    "Capabilities",
    "Change",
    "Channel",
    "Delivery",
    "DeliveryFailed",
    "Dossier",
    "External",
    "FailureClass",
    "Followup",
    "Gateway",
    "Idempotency",
    "IdempotencyConflict",
    "Ignored",
    "Inbound",
    "Incoming",
    "Intake",
    "InvalidMedia",
    "InvalidMessage",
    "InvalidQuery",
    "LaneBusy",
    "LedgerError",
    "Lookup",
    "MatrixChannel",
    "Message",
    "NoSend",
    "NoSuchIntent",
    "NoSuchStream",
    "NotDispatched",
    "NotPossible",
    "NotSent",
    "Origin",
    "Reading",
    "Receipt",
    "ReceiptPart",
    "Rejected",
    "RenderContext",
    "RenderedBatch",
    "RenderedUnit",
    "Reply",
    "SendContext",
    "Sending",
    "Sent",
    "SessionContext",
    "SessionPolicy",
    "SessionSource",
    "Status",
    "StoreUnavailable",
    "System",
    "SystemReason",
    "Taken",
    "Target",
    "TelegramChannel",
    "TextLimit",
    "Unknown",
    "UnknownChannel",
    "Unresolved",
    "UnroutableSource",
    "WriteUncertain",
    "__version__",
    "bridge_checks",
    "check_session_id",
    "check_session_key",
    "open",
    "reading",
    "web_app",
    "webhook",
]


def __getattr__(name: str) -> Any:
    if name not in _FACE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_FACE[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
