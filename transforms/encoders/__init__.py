"""An image, its features or its texts become a tf.Example."""
