"""Convert Samples to Blocks, and Blocks to Samples."""
