"""Statistics, duplicates, drawn records and report.html of a data set."""
