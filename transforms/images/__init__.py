"""Read, check, transcode and measure images; encode and decode masks."""
