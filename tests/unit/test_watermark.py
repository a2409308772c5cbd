"""The watermark: a platform forgets nothing that is not done."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgledger.ledger.watermark import Watermark


def test_one_that_is_not_done_holds_the_mark() -> None:
    """WM-1, ACKK-2: 5, 6 and 7 are under way and 6 fails: the mark stays at 5 until 6 is done too."""
    mark = Watermark("5")
    five, six, seven = (mark.arrive(cursor) for cursor in ("6", "7", "8"))
    assert mark.finish(five) == [five]
    assert mark.reached == "6"
    assert mark.finish(seven) == []
    assert (mark.reached, len(mark)) == ("6", 1)
    assert mark.finish(six) == [six, seven]
    assert (mark.reached, len(mark)) == ("8", 0)
    assert mark.finish(six) == [], "twice is once"


def test_only_what_has_a_cursor_moves_it() -> None:
    """WM-1: where the platform gives one for a whole batch."""
    mark = Watermark()
    tokens = [mark.arrive(None), mark.arrive(None), mark.arrive("batch-1")]
    assert [mark.finish(token) for token in reversed(tokens)] == [[], [], tokens]
    assert mark.reached == "batch-1"


@given(st.permutations(range(8)), st.integers(0, 8))
def test_the_mark_never_passes_what_is_open(order: list[int], done: int) -> None:
    """WM-1: whatever the order in which events are finished."""
    mark = Watermark("0")
    tokens = [mark.arrive(str(number + 1)) for number in range(8)]
    finished = set(order[:done])
    for number in order[:done]:
        mark.finish(tokens[number])
    first_open = next((number for number in range(8) if number not in finished), 8)
    assert mark.reached == str(first_open)
    assert len(mark) == 8 - done
