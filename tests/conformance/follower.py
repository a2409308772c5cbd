"""A process that follows a ledger through that library: `python follower.py <ledger>`.

It prints `ready`, then a line per notification, `position stream version topic`, and ends when a worker has stopped.
"""

from __future__ import annotations

import sys

from msgledger.ledger.store.application import LedgerApplication


def main(path: str) -> None:
    with LedgerApplication({"MSGLEDGER_PATH": path}) as app, app.recorder.subscribe() as subscription:
        print("ready", flush=True)
        for notification in subscription:
            print(notification.id, notification.originator_id, notification.originator_version, notification.topic)
            if notification.topic == "WorkerStopped":
                break


if __name__ == "__main__":
    main(sys.argv[1])
