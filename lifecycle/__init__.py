"""What a gateway calls: open, send, dispatch, close; the order of the steps, and no decision of its own."""
