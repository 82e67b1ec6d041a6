"""Sources of images with objects: label files beside images, and files that name images."""
