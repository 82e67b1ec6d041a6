"""Pictures become what a model makes of them."""
