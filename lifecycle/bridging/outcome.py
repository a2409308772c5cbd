"""What becomes of a payload that a gateway hands over: five outcomes, and who carried it out.

Two are the end of it, two fall back to the gateway's own delivery, and one is an error that gets through.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final, Literal

import msgspec

from ...adapters.external import NoSend, accepted
from ...ledger.errors import DeliveryFailed, InvalidMessage
from ...ledger.intent import Status
from ...ledger.message import Receipt, ReceiptPart
from ...ledger.outcome import Accepted
from ..send import Delivery

Kind = Literal["handled_visible", "handled_no_send", "unsupported", "not_applicable", "failed"]
Path = Literal["own", "prepared", "recorded", "durable", "best_effort"]
"""Who carried it out: the gateway's callback; its own dispatcher; either of them, with the ledger keeping record; the
ledger, which owes it until it has arrived; a channel of ours while the ledger could not be written."""

FALLS_BACK: Final[frozenset[Kind]] = frozenset({"unsupported", "not_applicable"})
TERMINAL: Final[frozenset[Kind]] = frozenset({"handled_visible", "handled_no_send"})


class BridgeOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """`handled_visible` also says of what is still owed that nobody else has to deliver it: see `status`."""

    kind: Kind
    path: Path | None = None
    """None where nothing was carried out."""
    reason: str = ""
    """Why it is not visible yet, or never will be."""
    missing: tuple[str, ...] = ()
    """What the payload needs and the channel does not bring along."""
    receipt: Receipt | None = None
    delivery: Delivery | None = None
    error: Exception | None = None
    said: Any = None
    """What the gateway's own function returned."""
    instead_of: BridgeOutcome | None = None
    """Why it fell back to the gateway's own delivery."""

    @property
    def terminal(self) -> bool:
        """Whether nothing more is to be done about it. Only what falls back is not."""
        return self.kind not in FALLS_BACK

    @property
    def durable(self) -> bool:
        """Whether the ledger delivers it, whoever dies. What it merely keeps record of is not counted."""
        return self.path == "durable"

    @property
    def intent(self) -> str | None:
        """The id that `gateway.intent` knows it by, also after a restart."""
        return None if self.delivery is None else self.delivery.intent

    @property
    def status(self) -> Status | None:
        """None of what the ledger knows nothing about."""
        return None if self.delivery is None else self.delivery.status

    @property
    def label(self) -> str:
        """What to count by."""
        return f"{self.path or 'none'}.{self.kind}"


Counts = Counter[str]


def of_delivery(delivery: Delivery, path: Path) -> BridgeOutcome:
    """What the ledger's word comes to. Anything that it still owes is handled: a second delivery would be a copy."""
    status = delivery.status
    if status is Status.SENT:
        return BridgeOutcome(kind="handled_visible", path=path, receipt=delivery.receipt, delivery=delivery)
    why = delivery.reason or (None if delivery.failure is None else delivery.failure.value)
    if status is Status.CANCELLED:
        return BridgeOutcome(kind="handled_no_send", path=path, reason=why or "cancelled", delivery=delivery)
    if status is Status.FAILED:
        failed = DeliveryFailed(f"intent {delivery.intent} has failed ({why}): nothing more is sent", delivery.intent)
        return BridgeOutcome(kind="failed", path=path, reason=why or "failed", delivery=delivery, error=failed)
    if delivery.hold is not None:
        why = f"held ({delivery.hold})"
    elif why is None:
        why = f"due at {delivery.due_at}" if delivery.attempts else "it waits for its turn or for the channel"
    return BridgeOutcome(
        kind="handled_visible",
        path=path,
        reason=f"{status.value}: {why}",
        receipt=delivery.receipt,
        delivery=delivery,
    )


def of_own(said: object, named: object, path: Path, instead_of: BridgeOutcome | None = None) -> BridgeOutcome:
    """What the gateway's own function returned; `named` is the part of it that names the messages."""
    if isinstance(said, NoSend):
        return BridgeOutcome(kind="handled_no_send", path=path, reason=said.reason, said=said, instead_of=instead_of)
    reason = ""
    try:
        receipt = receipt_of(accepted(named))
    except InvalidMessage as error:  # it was delivered all the same
        why = f"{type(named).__name__}: {named}" if isinstance(named, Exception) else str(error)
        receipt, reason = Receipt((ReceiptPart(0),)), f"delivered, without a receipt: {why}"
    return BridgeOutcome(
        kind="handled_visible", path=path, reason=reason, receipt=receipt, said=said, instead_of=instead_of
    )


def receipt_of(answer: object) -> Receipt:
    """Every id, and the first as the primary."""
    if not isinstance(answer, Accepted):
        return Receipt((ReceiptPart(0),))
    parts = answer.parts or (ReceiptPart(0, answer.platform_id),)
    primary = next((part.platform_id for part in parts if part.platform_id is not None), None)
    return Receipt(parts, primary, answer.sent_at, parts[0].thread, parts[0].reply_to)
