"""Every test of this folder gets a bench, and whatever it wrote is checked afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .kit import Bench, check


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture(autouse=True)
def _views_and_facts_stand(tmp_path: Path) -> Iterator[None]:
    """G9: a rebuilt view equals the live one, after every test that writes."""
    yield
    for path in sorted(tmp_path.glob("*.db")):
        check(path)
