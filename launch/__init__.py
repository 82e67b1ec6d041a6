"""Start and watch jobs: command line, runners, progress."""
