"""One platform of our own for all tests of this folder; each test uses a place and keys of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgledger.adapters.qa_platform import QaPlatform

TOKEN = "s3cret-token-of-the-tests"


@pytest.fixture(scope="session")
def qa_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QaPlatform]:
    with QaPlatform.start(tmp_path_factory.mktemp("qa"), token=TOKEN) as platform:
        yield platform


@pytest.fixture
def qa(qa_server: QaPlatform) -> Iterator[QaPlatform]:
    """The platform without rules, and with its ordinary settings again afterwards."""
    yield qa_server
    qa_server.clear_script()
    qa_server.settings(on_duplicate="first_id", window_s=86_400.0, lookup_lag_s=0.0, ids="int", text_max=2000)
