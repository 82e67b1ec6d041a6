"""TFRecord files: encode, frame, index and read tf.Examples."""
