"""TFRecord files: records of tf.Example framed, indexed and read back."""
