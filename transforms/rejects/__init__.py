"""Rejects: counted, and listed up to a bound, in one order."""
