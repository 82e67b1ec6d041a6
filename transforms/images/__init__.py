"""An image from its file to checked bytes; masks."""
