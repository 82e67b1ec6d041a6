"""Configurations of trainers for a data set."""
