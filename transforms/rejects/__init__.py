"""What is left out: gathered in compressed blocks, and listed in one order."""
