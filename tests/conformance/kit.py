"""What the conformance tests share: a ledger in a folder of its own per test, named by the environment or handed over.

The cases of `eventsourcing` are imported as modules, never by name: pytest would collect them a second time.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from unittest import TestCase, mock

from eventsourcing.utils import Environment
from msgledger.ledger.store.datastore import Datastore, IdType

MODULE = "msgledger.ledger.store.apsw"


def environment(path: Path, **more: str) -> Environment:
    return Environment(env={"PERSISTENCE_MODULE": MODULE, "MSGLEDGER_PATH": str(path), **more})


class InFolder(TestCase):
    """A folder that lives as long as the test, and the environment that names a new ledger in it."""

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="msgledger-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.env = environment(self.folder / "l.db")
        super().setUp()


class OnADatastore(InFolder):
    """The recorders of the test stand on this ledger."""

    id_type: IdType = "uuid"

    def setUp(self) -> None:
        super().setUp()
        self.datastore = Datastore.open(str(self.folder / "l.db"), self.id_type, create=True)
        self.addCleanup(self.datastore.close)


class ByEnvironment(InFolder):
    """Applications that the test makes find their ledger as that library's users name it: in the process environment.

    Some cases leave closing to the collector of garbage, which is why the folder may go before the ledger in it.
    """

    def setUp(self) -> None:
        super().setUp()
        patch = mock.patch.dict(os.environ, self.env)
        patch.start()
        self.addCleanup(patch.stop)
