"""What is checked before a job is started: inputs, output, runner."""
