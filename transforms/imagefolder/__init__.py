"""Hugging Face's imagefolder: a metadata file beside images."""
