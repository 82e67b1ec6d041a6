"""Find records of data sets or of any TFRecord files, and describe them."""
