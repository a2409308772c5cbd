"""Names that are safe: session ids as parts of file names, session keys as logical names."""

from __future__ import annotations

import pytest
from msgledger.ledger.safe import check_session_id, check_session_key, loadable

BOTH, NONE, KEY = (True, True), (False, False), (False, True)


@pytest.mark.parametrize(
    ("value", "id_and_key"),
    [
        # PS-1
        ("abc123", BOTH),
        ("20260720_101500_deadbeef", BOTH),
        # PS-2
        *((value, NONE) for value in ("..", "a..b", "../../etc/passwd", "good/../bad", "good\\..\\bad")),
        ("agent:main:../../secret", NONE),
        # PS-3
        ("/etc/passwd", NONE),
        ("\\windows\\x", NONE),
        # PS-4
        *((value, KEY) for value in ("a/b", "a\\b", "~/x")),
        # PS-5
        ("agent:main:google_chat:dm:spaces/9Il", KEY),
        ("agent:main:dingtalk:dm:cid/9w/E=", KEY),
        # PS-6
        *((value, NONE) for value in ("C:", "C:x", "C:/windows", "D:\\p", "c:drive/key", "ａ:x")),
        # PS-7
        ("1:x", BOTH),
        # PS-8
        *((value, NONE) for value in ("a\0b", "a\x1fb", "a\x7fb", "a\nb", " a", "a ", "", "a" * 513, "é" * 257)),
        ("a\x85b", NONE),
        ("a b", BOTH),
        ("a" * 512, BOTH),
        ("\ud800", NONE),
        ("a․․b", NONE),
    ],
)
def test_what_is_accepted(value: str, id_and_key: tuple[bool, bool]) -> None:
    for check, accepted in zip((check_session_id, check_session_key), id_and_key, strict=True):
        if accepted:
            assert check(value) == value
        else:
            with pytest.raises(ValueError, match=r"session (id|key) "):
                check(value)


def test_a_refusal_names_the_field_and_echoes_little() -> None:
    """PS-8."""
    with pytest.raises(ValueError, match="session id 'x") as refused:
        check_session_id("x" * 5_000)
    assert "has 5000 bytes, the most is 512" in str(refused.value)
    assert str(refused.value).count("x") <= 80
    with pytest.raises(ValueError, match=r"session key 'a\\nb' holds a control character"):
        check_session_key("a\nb")


def test_one_bad_entry_is_skipped_and_reported() -> None:
    """PS-9: the others load."""
    good, bad = loadable([("one", "abc"), ("two", "../x"), ("three", "def")], check_session_id)
    assert good == {"one": "abc", "three": "def"}
    assert list(bad) == ["two"] and "holds '..'" in str(bad["two"])
