"""Beam's options and runners: start, watch, explain and end jobs."""
