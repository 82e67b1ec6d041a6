"""The page about a data set, report.html: charts, examples of what was left out, and pictures."""
