"""Dates: when the day of a reset began, and the ids that have a date in them. The core knows only milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ..errors import InvalidConfig


def zone(name: str) -> ZoneInfo:
    """Raises `InvalidConfig`."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidConfig(f"timezone {name[:80]!r} is not known: give one like Europe/Berlin or UTC") from error


def day_began_at(now: int, hour: int, where: ZoneInfo) -> int:
    """The last time that it was `hour` o'clock there, in UTC milliseconds; where the clock skips the hour, right after
    the skip."""
    local = datetime.fromtimestamp(now / 1000, where)
    began = local.replace(hour=hour, minute=0, second=0, microsecond=0, fold=0)
    if began.astimezone(UTC) > local.astimezone(UTC):
        began = (began - timedelta(days=1)).replace(fold=0)
    return int(began.astimezone(UTC).timestamp() * 1000)


def session_id(now: int, digits: str) -> str:
    """`YYYYMMDD_HHMMSS_` and 8 hex digits, in UTC."""
    return f"{datetime.fromtimestamp(now / 1000, UTC):%Y%m%d_%H%M%S}_{digits}"
