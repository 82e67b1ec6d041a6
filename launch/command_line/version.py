"""Text of `recordmill --version`."""

import platform
from importlib.metadata import packages_distributions, version

_MODULES = ("apache_beam", "tensorflow", "numpy", "PIL", "pyarrow")
"""Modules that decide the bytes of shards and the course of a job."""


def version_text(verbose: bool) -> str:
    """Return Recordmill's version; if verbose, also lines with Python, the platform and the libraries, for reports.

    It imports no library: a broken TensorFlow is a reason to ask for versions.
    """
    lines = [f"recordmill {version('recordmill')}"]
    if verbose:
        lines += [f"{platform.python_implementation()} {platform.python_version()}", platform.platform()]
        packages = packages_distributions()  # tensorflow-cpu and tf-nightly are `tensorflow`, too
        for module in _MODULES:
            names = sorted(set(packages.get(module, ())))
            lines += [f"{name} {version(name)}" for name in names] or [f"{module} is not installed"]
    return "\n".join(lines) + "\n"
