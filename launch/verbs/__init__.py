"""One module a verb, from checked options to the summary on the terminal."""
