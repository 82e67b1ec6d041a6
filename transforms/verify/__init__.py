"""Compare a data set with its manifest."""
