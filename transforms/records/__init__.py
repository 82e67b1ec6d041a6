"""TFRecord files read back."""
