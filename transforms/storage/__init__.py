"""Files, local, in buckets, and in .zip archives in either, behind one interface."""
