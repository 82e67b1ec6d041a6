"""TensorFlow CSV: one row per object, with the columns of the Object Detection API's tutorials and Roboflow."""
