"""The cases that `eventsourcing` ships for applications, over our persistence module."""

from __future__ import annotations

import pytest
from eventsourcing.tests import application as cases

from .kit import MODULE, ByEnvironment


class TestApplication(ByEnvironment, cases.ApplicationTestCase):
    @pytest.mark.filterwarnings("default")
    def test_application_log(self) -> None:
        """The case looks at a warning of that library, which our settings would raise."""
        super().test_application_log()


class TestExample(ByEnvironment, cases.ExampleApplicationTestCase):
    expected_factory_topic = f"{MODULE}:Factory"
