"""Import of TensorFlow."""

import os
import sys

from recordmill.launch.terminal.error_stream import others_hidden
from recordmill.schemas.errors import missing_extra
from recordmill.transforms.runtime.progress import set_step


def require_tensorflow(what: str, is_checking: bool = True) -> None:
    """Import TensorFlow without its messages, which takes seconds.

    Args:
        what: the verb or flag that needs it, for the message.
        is_checking: whether it only reads: then it is kept from what makes a model fast.

    Raises:
        ConfigError: it is not installed.
    """
    set_step("starting TensorFlow")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if is_checking and "tensorflow" not in sys.modules:  # or processes that are started later would count otherwise
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # of no use here, and it announces itself at every start
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")  # checking needs no GPU, and one may be training
    try:
        # It reports each GPU library that it does not find as an error, before any setting of its log is heard.
        with others_hidden():
            import tensorflow as tf

            tf.constant(0)  # makes the devices, and what there is to say of them
    except ImportError as error:
        raise missing_extra(what, "tensorflow") from error
