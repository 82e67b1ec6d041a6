"""Airflow's and Dataflow's view of the options."""
