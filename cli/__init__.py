"""What a person calls: one command group a file. Nothing is decided here."""
