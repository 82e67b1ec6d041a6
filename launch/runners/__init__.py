"""Beam's options and runners: a job is started, watched, explained, ended."""
