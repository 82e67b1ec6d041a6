"""What steps of every job use: coders, outputs by type, progress, bounds on what is held at once."""
