"""A task becomes a tf.Example."""
