"""A process ends with its parent, however that ends."""

import ctypes
import os
import signal

_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of linux/prctl.h


def end_with_parent(parent: int) -> None:
    """Have Linux kill this process when the thread that started it ends.

    Args:
        parent: Process id. This process ends at once if its parent is another one, because the first has ended.
    """
    ctypes.CDLL(None).prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
