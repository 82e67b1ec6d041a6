"""Label Studio: a JSON list of tasks."""
