"""Steps of jobs that add to a data set."""
