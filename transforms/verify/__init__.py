"""A data set is compared with its manifest."""
