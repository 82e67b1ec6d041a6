"""What Dataflow's launcher starts, as `python main.py --images=gs://… --runner=DataflowRunner …`.

Which command that is, and in which image, the image knows. Workers that are given none would run in Beam's image, which
lacks Recordmill.
"""

import os
import sys

from recordmill.launch.flat import main

if __name__ == "__main__":
    image = os.environ.get("RECORDMILL_IMAGE")
    ours = [f"--command={os.environ['RECORDMILL_COMMAND']}", *([f"--sdk_container_image={image}"] if image else [])]
    sys.exit(main([*ours, *sys.argv[1:]]))
