"""The reading side's TensorFlow, there or not."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from schemas.errors import ConfigError


def require_tensorflow(purpose: str) -> None:
    """Import TensorFlow, quietly.

    Args:
        purpose: what it is needed for, `verify decodes images`.

    Raises:
        ConfigError: it is not installed.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")  # of no use here, and it announces itself at every start
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")  # checking needs no GPU, and one may be training
    try:
        with _without_native_messages():
            import tensorflow as tf

            tf.constant(0)  # makes the devices, and what there is to say of them
    except ImportError as error:
        raise ConfigError(f"{purpose} with TensorFlow: pip install 'recordmill[tensorflow]'") from error


@contextmanager
def _without_native_messages() -> Iterator[None]:
    """Nothing that native code prints on standard error while the block runs: TensorFlow reports each GPU library that
    it does not find as an error, before any setting of its log is heard."""
    if sys.stderr is None:  # the caller has closed it
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
