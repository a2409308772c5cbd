"""What comes in: recorded, handed to its turn, and acknowledged."""
