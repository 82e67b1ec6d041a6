"""List prices of Google Cloud in USD, without discounts and free tiers. Others than these could not be read where this
was written, FlexRS's for example: what they are to be multiplied with is printed beside them.

Nothing asks for newer ones: whoever changes a price changes its date.
"""

REGION = "us-central1"
READ_ON = "2026-09-20"
"""When https://cloud.google.com/storage/pricing said this. Dataflow's are those of Apache Beam 2.77, in
apache_beam.testing.load_tests.dataflow_cost_consts, from https://cloud.google.com/dataflow/pricing."""

VCPU_USD_AN_HOUR = 0.056
MEMORY_USD_A_GB_HOUR = 0.003557
DISK_USD_A_GB_HOUR = 0.000054
SHUFFLE_USD_A_GB = 0.011

CLASS_A_USD = 0.005 / 1000
"""Of a listing, or a write."""
CLASS_B_USD = 0.0004 / 1000
"""Of a read."""
STORAGE_USD_A_GIB_MONTH = 0.02
RETRIEVAL_USD_A_GIB = {"NEARLINE": 0.01, "COLDLINE": 0.02, "ARCHIVE": 0.05}
TRANSFER_USD_A_GIB = 0.02
"""Between two places of North America, as others quote that page, without its date; a multi-region is another place
than the regions within it."""
