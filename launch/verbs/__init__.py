"""One module per verb, from checked options to the summary."""
