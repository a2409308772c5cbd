"""How a platform is spoken to: one channel a file, sans-I/O, and the drivers beside them."""
