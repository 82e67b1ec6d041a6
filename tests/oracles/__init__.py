"""Steps written for one image at a time, which the steps on Blocks have to equal."""
