"""The demo keeps its word: it counts nothing owed, lost, disordered or doubled, and it would notice."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from msgledger.adapters.text import DUPLICATE_MARKER
from msgledger.cli import demo as demo_module
from msgledger.cli.demo_books import judge
from msgledger.cli.demo_gateway import CONVERSATIONS, MESSAGES, text_of
from msgledger.ledger.store.store import Store
from msgledger.projections import VIEWS

from .kit import AT, Writer, run

BLIND = '''
"""The demo's gateway with a known mistake switched on: recovery sends again without asking."""
from msgledger.ledger import steps
from msgledger.lifecycle.dispatch import loop

right = steps.next_step


def blind(state, terms, now, **more):
    step = right(state, terms, now, **more)
    return steps.Start("recovery", "window") if isinstance(step, steps.Check) else step


loop.next_step = blind
loop.same_request = lambda state, tries: True
from msgledger.cli.demo_gateway import main

main()
'''


@pytest.mark.slow
def test_the_demo_in_full(tmp_path: Path) -> None:
    """G3, G6, G7, SND-4: three kills in mid-send, and both books agree in the end."""
    done = run("demo", "--keep", tmp_path / "kept")
    assert done.code == 0, done
    assert done.out.endswith("  owed 0, lost 0, out of order 0, doubled 0\n")
    assert done.out.count("SIGKILL, with") == 3
    assert "in flight" in done.out and "attempt 1 " in done.out
    assert "\x1b" not in done.out
    counted = run("--ledger", tmp_path / "kept" / "ledger.db", "intents", "list", "--status", "sent", "-c")
    assert counted.out == f"{len(CONVERSATIONS) * MESSAGES}\n"
    assert run("demo", "--keep", tmp_path / "kept").code == 2, "a folder in use is refused"


@pytest.mark.slow
def test_the_demo_notices_a_blind_resend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """G4: with that mistake switched on messages are doubled, and the demo says so with exit 1."""
    script = tmp_path / "blind.py"
    script.write_text(BLIND)
    monkeypatch.setattr(demo_module, "GATEWAY", ("-P", str(script)))
    done = run("demo", "--json")
    assert done.code == 1
    verdict = json.loads(done.out)["verdict"]
    assert verdict["doubled"] > 0 and not verdict["good"]


def test_a_demo_that_cannot_go_on_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "broken.py"
    script.write_text("raise SystemExit('no gateway today')")
    monkeypatch.setattr(demo_module, "GATEWAY", ("-P", str(script)))
    monkeypatch.setattr(demo_module, "ACTIONS", ((0, "hang", "now"),))
    done = run("demo")
    assert done.code == 1
    assert "the demo cannot go on: the gateway ended before it could be killed: no gateway today" in done.err
    assert str(Path(sys.prefix)) not in done.err


def test_each_kind_of_mistake_is_counted(tmp_path: Path) -> None:
    """The counting itself, against records that were never written by a gateway."""
    name = CONVERSATIONS[0]
    everything = [text_of(one, number) for one in CONVERSATIONS for number in range(1, MESSAGES + 1)]
    record = [{"id": index, "text": text, "place": text.split()[0]} for index, text in enumerate(everything)]
    with Writer(tmp_path / "l.db") as w:
        w.sent(1, "0", text=text_of(name, 1))
        w.record(2, text=text_of(name, 2), target="other")
    with Store.open(tmp_path / "l.db", VIEWS, wall_ms=lambda: AT, create=False, read_only=True) as store:

        def counted(accepted: list[dict[str, object]]) -> dict[str, int]:
            verdict, _ = judge(store, accepted)
            names = ("owed", "lost", "out_of_order", "doubled", "marked", "mismatched")
            assert not verdict.good
            return {name: getattr(verdict, name) for name in names if getattr(verdict, name)}

        assert counted(record) == {"owed": 1}
        assert counted(record[:-2]) == {"owed": 1, "lost": 2}
        assert counted([record[0], *record[2:]]) == {"owed": 1}, "what is owed is not lost"
        assert counted([*record, record[3]]) == {"owed": 1, "doubled": 1}
        assert counted([*record[:3], record[4], record[3], *record[5:]]) == {"owed": 1, "out_of_order": 1}
        copy = {**record[3], "id": 99, "text": DUPLICATE_MARKER + everything[3]}
        assert counted([*record, copy]) == {"owed": 1, "marked": 1}
        assert counted([{**record[0], "id": 77}, *record[1:]]) == {"owed": 1, "mismatched": 1}
