"""Which names may be used: a session id may become part of a file name, a session key is a logical name.

Nothing is repaired here: a name that is not safe is refused, with the field and the beginning of the value.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from typing import Final

from .limits import KEY_MAX_BYTES

ECHO_MAX_CHARS: Final = 80
"""How much of a refused value is shown."""


def check_session_id(value: str) -> str:
    """The value, if it may become part of a file name. Raises `ValueError`."""
    _check("session id", value)
    if "/" in value or "\\" in value:
        raise _refused("session id", value, "holds a path separator")
    return value


def check_session_key(value: str) -> str:
    """The value, if it is a safe logical name; it may hold separators. Raises `ValueError`."""
    _check("session key", value)
    return value


def loadable(
    entries: Iterable[tuple[str, str]], check: Callable[[str], str]
) -> tuple[dict[str, str], dict[str, ValueError]]:
    """Of (name, value) pairs those whose value passes, and what was wrong with each of the others."""
    good: dict[str, str] = {}
    bad: dict[str, ValueError] = {}
    for name, value in entries:
        try:
            good[name] = check(value)
        except ValueError as error:
            bad[name] = error
    return good, bad


def _check(field: str, value: str) -> None:
    if not value:
        raise ValueError(f"{field} is empty")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise _refused(field, value, "holds a lone surrogate") from None
    if size > KEY_MAX_BYTES:
        raise _refused(field, value, f"has {size} bytes, the most is {KEY_MAX_BYTES}")
    if any(unicodedata.category(char) in ("Cc", "Zl", "Zp") for char in value):
        raise _refused(field, value, "holds a control character")
    if value != value.strip():
        raise _refused(field, value, "begins or ends with a space")
    plain = unicodedata.normalize("NFKC", value)
    for form in (value, plain):
        if ".." in form:
            raise _refused(field, value, "holds '..'")
        if form[0] in "/\\":
            raise _refused(field, value, "is an absolute path")
        if form[1:2] == ":" and form[0].isascii() and form[0].isalpha():
            raise _refused(field, value, "begins with a drive letter")


def _refused(field: str, value: str, why: str) -> ValueError:
    shown = value if len(value) <= ECHO_MAX_CHARS else value[: ECHO_MAX_CHARS - 3] + "..."
    return ValueError(f"{field} {ascii(shown)[: ECHO_MAX_CHARS + 2]} {why}")
