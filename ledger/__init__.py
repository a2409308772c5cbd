"""What happened: values, events, pure decisions, and in `store/` the append-only store.

Outside `store/` nothing here reads a clock, draws a random number or sleeps: time, ids and chance come in as arguments.
"""
