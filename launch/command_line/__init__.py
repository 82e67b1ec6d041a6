"""The command line's grammar, and the same options as parameters."""
