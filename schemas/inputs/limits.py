"""What is never read, decoded or written. It is known, and refused, before memory is taken for it."""

MAX_FILE_BYTES = 256_000_000
"""Of an image file, or a panoptic PNG."""
MAX_PIXELS = 178_000_000
"""Of one picture: TensorFlow decodes none whose pixels, three bytes each, take more than 2 ** 29 bytes. Also of all
pictures that a process decodes at the same time."""
MAX_RECORD_BYTES = 512_000_000
"""Of one record: any image file that is read, and as much again for its annotations. protobuf parses no message of
2 ** 31 bytes, nor does gRPC send one; so four records still fit into what readers hold as one."""
