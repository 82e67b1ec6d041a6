"""Output of the terminal: progress, summaries, errors."""
