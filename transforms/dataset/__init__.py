"""What is known of a data set as a whole."""
