"""TensorFlow CSV: a row an object, with the columns of the Object Detection API's tutorials and Roboflow."""
