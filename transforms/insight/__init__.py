"""Statistics, duplicates, drawn records, report.html."""
