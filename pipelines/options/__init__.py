"""What a job is asked to do: frozen values, checked once, before anything runs."""
