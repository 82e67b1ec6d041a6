"""Which transforms, in which order: one module a job, each with its `build`."""
