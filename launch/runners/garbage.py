"""When Python looks for cycles of objects that nobody needs, in a process that runs one command.

What is imported and built before a job begins is 200,000 objects. Python would look through them four times, and once
more as the process ends; all but a few are in use.
"""

import atexit
import gc

_OBJECTS_A_COLLECTION = 50_000
"""New ones. With Python's 700, a tenth of the time of a job of ten images would go into it."""

_is_put_off = False


def put_off() -> None:
    """Nothing is looked through before `look` is called, nor as the process ends: the system has its memory back."""
    global _is_put_off
    gc.disable()
    gc.set_threshold(_OBJECTS_A_COLLECTION)
    atexit.register(gc.freeze)
    _is_put_off = True


def look() -> None:
    """If that has been put off: new objects are looked through from here on, and not those that are there."""
    global _is_put_off
    if _is_put_off:
        _is_put_off = False
        gc.freeze()
        gc.enable()
