"""TFRecord files of other tools: label files whose records hold the images."""
