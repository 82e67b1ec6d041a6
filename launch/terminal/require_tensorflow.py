"""Import of TensorFlow."""

import os
import sys

from recordmill.launch.terminal.error_stream import hide_other_output
from recordmill.schemas.errors import missing_extra
from recordmill.transforms.runtime.progress import set_step


def require_tensorflow(what: str, is_checking: bool = True) -> None:
    """Import TensorFlow without its messages, which takes seconds.

    Args:
        what: Verb or flag that needs it, for the message.
        is_checking: True if TensorFlow only reads: then settings for fast models are switched off.

    Raises:
        ConfigError: TensorFlow is not installed.
    """
    set_step("starting TensorFlow")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if is_checking and "tensorflow" not in sys.modules:  # not if imported: later processes would compute differently
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # useless here, and it prints a message at every start
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")  # checking needs no GPU, and one may be training
    try:
        # TensorFlow prints an error for each missing GPU library before it reads any setting of its log.
        with hide_other_output():
            import tensorflow as tf

            tf.constant(0)  # creates the devices, and prints their messages
    except ImportError as error:
        raise missing_extra(what, "tensorflow") from error
