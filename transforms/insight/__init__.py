"""What a data set's records hold: statistics, duplicates, drawn records, report.html."""
