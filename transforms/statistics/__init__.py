"""Statistics of records: counted while these are written, or read back, and added up."""
