"""Whether capabilities hold together, and have the functions that they declare.

A declaration that no function stands behind would let the core promise what nobody does (UNK-2), so it is refused
before a message is taken. Nothing here talks to a platform, and nothing is repaired in silence.
"""

from __future__ import annotations

import math
from typing import Final

from ..ledger.errors import InvalidConfig
from .surface import Capabilities

TEXT_MAX_LEAST: Final = 40
"""The shortest text limit that leaves room for the duplicate marker and some text behind it."""


def check_declared(name: str, capabilities: Capabilities, *, reconciles: bool, tags: bool = False) -> None:
    """Raise `InvalidConfig` where capabilities contradict themselves or the functions that are there."""
    text, key, look = capabilities.text, capabilities.idempotency, capabilities.reconcile
    if look is not None and not reconciles:
        raise InvalidConfig(
            f"channel {name!r} declares reconcile ({look.kind}) and has no look-up function: "
            "add the function or take the declaration back"
        )
    if look is None and reconciles:
        raise InvalidConfig(
            f"channel {name!r} has a look-up function that its capabilities do not declare: "
            "declare `reconcile=Lookup(...)` or take the function away"
        )
    if (capabilities.origin == "native") != tags:
        raise InvalidConfig(
            f"channel {name!r} declares origin {capabilities.origin!r} and has "
            f"{'encode_origin and decode_origin' if tags else 'not both of encode_origin and decode_origin'}: "
            "they go with `native`, and with nothing else"
        )
    if text.max < TEXT_MAX_LEAST:
        raise InvalidConfig(f"channel {name!r} has text.max {text.max}: the least is {TEXT_MAX_LEAST}")
    if capabilities.live and capabilities.edit is None:
        raise InvalidConfig(f"channel {name!r} declares live without edit: a preview is finished by editing it")
    if capabilities.batch_max < 1:
        raise InvalidConfig(f"channel {name!r} has batch_max {capabilities.batch_max}: the least is 1")
    windows = {
        "deadline_s": capabilities.deadline_s,
        "per_second": capabilities.per_second,
        "echo_horizon_s": capabilities.echo_horizon_s,
        "media_max_bytes": capabilities.media_max_bytes,
        "idempotency.window_s": None if key is None else key.window_s,
        "reconcile.horizon_s": None if look is None else look.horizon_s,
        "edit.window_s": None if capabilities.edit is None else capabilities.edit.window_s,
        "delete.window_s": None if capabilities.delete is None else capabilities.delete.window_s,
    }
    for field, value in windows.items():
        if value is not None and not (math.isfinite(value) and value > 0):
            raise InvalidConfig(f"channel {name!r} has {field} {value!r}: give a number above 0")
    if not (math.isfinite(capabilities.settle_s) and capabilities.settle_s >= 0):
        raise InvalidConfig(f"channel {name!r} has settle_s {capabilities.settle_s!r}: give 0 or more")
