"""The append-only store: one writer thread, reads beside it, and the boundary to the `eventsourcing` library."""
