"""Templates that `recordmill config` fills: of this folder of the documentation, what is installed."""
