"""Output of the terminal: progress, consoles, errors."""
