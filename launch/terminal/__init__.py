"""What a person sees: progress, summaries, errors."""
