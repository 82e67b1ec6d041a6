"""What steps of every job use: coders, threads, forked processes, progress."""
