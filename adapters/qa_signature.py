"""How our own platform signs what it pushes, for both of its sides. Standard library only."""

from __future__ import annotations

import hashlib
import hmac
from typing import Final

SIGNATURE: Final = "x-qa-signature"
TIMESTAMP: Final = "x-qa-timestamp"
"""UTC milliseconds."""


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """What a push has in `SIGNATURE`: HMAC-SHA256 over its time and its body."""
    return "v1=" + hmac.new(secret.encode(), timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()
