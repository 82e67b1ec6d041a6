"""Encode images, their features and their texts as tf.Examples."""
