"""Options for Airflow and Dataflow."""
