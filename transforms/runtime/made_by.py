"""Which versions made something: of this program, and of the libraries whose pixels or compression are in its bytes."""

import zlib
from functools import lru_cache
from importlib.metadata import version

from recordmill.schemas.layouts import FEATURES, TABLE

_DISTRIBUTIONS = ("recordmill", "pillow", "pycocotools")
_OF_PILLOW = ("jpg", "jpg_2000", "libjpeg_turbo", "libtiff", "webp", "zlib", "zlib_ng", "avif")
"""Libraries that Pillow has with it, by its names for them."""


@lru_cache
def made_by(layout: str) -> dict[str, str]:
    """Versions by name, of this process; a library that Pillow lacks is left out, and TensorFlow or Arrow where the
    layout's records do not depend on it."""
    from PIL import features  # only where records are made

    found = {name: version(name) for name in _DISTRIBUTIONS}
    found |= {f"pillow/{name}": text for name in _OF_PILLOW if (text := features.version(name))}
    if layout == FEATURES.layout:
        import keras
        import tensorflow as tf

        found |= {"keras": keras.__version__, "tensorflow": tf.__version__}
        # Pillow takes zlib from TensorFlow where that came first; what is unpacked is the same, and nothing is packed.
        found = {name: text for name, text in found.items() if name not in ("pillow/zlib", "pillow/zlib_ng")}
    if layout == TABLE.layout:
        found["pyarrow"] = version("pyarrow")
    return found | {"zlib": zlib.ZLIB_RUNTIME_VERSION}
