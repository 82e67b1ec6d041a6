"""How a job is started and watched: the command line, runners, progress."""
