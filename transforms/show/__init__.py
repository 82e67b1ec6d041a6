"""Records of data sets, or of TFRecord files of anybody, found and put into words."""
