"""One interface to local files, files in buckets, and members of .zip archives."""
