"""Convert Samples of users' pipelines to Blocks, and Blocks to Samples."""
