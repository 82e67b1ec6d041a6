"""Jobs: one module for each source and each other job, and the registry of verbs."""
