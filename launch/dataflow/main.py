"""Program of Dataflow's launcher: `python main.py --data=gs://… --runner=DataflowRunner …`.

The image defines the command, and its own name for the workers. Beam's default image lacks Recordmill."""

import os
import sys

from recordmill.launch.flat import main

if __name__ == "__main__":
    image = os.environ.get("RECORDMILL_IMAGE")
    ours = [f"--command={os.environ['RECORDMILL_COMMAND']}", *([f"--sdk_container_image={image}"] if image else [])]
    sys.exit(main([*ours, *sys.argv[1:]]))
