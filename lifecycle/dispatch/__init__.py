"""What goes on by itself: the loop over what is due, attempts and their files, what is held, sends without a record."""
