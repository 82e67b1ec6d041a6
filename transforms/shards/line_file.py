"""Write a list of a split to its state folder, with its digest."""

from contextlib import ExitStack
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import msgspec

from recordmill.transforms.storage.resolve import storage_for

if TYPE_CHECKING:
    from typing_extensions import Self


class LineFile:
    """File of lines, which is created with the first one. It appears at the end of the `with` block.

    Args:
        output: Folder of the data set.
        path: Path of the file, in a state folder.
    """

    def __init__(self, output: str, path: str):
        self._output, self._path = output, path
        self._stack, self._digest = ExitStack(), sha256()
        self._upload: Any = None

    @property
    def sha256(self) -> str | msgspec.UnsetType:
        """Hex digest of the lines; UNSET without any."""
        return msgspec.UNSET if self._upload is None else self._digest.hexdigest()

    def write(self, line: bytes) -> None:
        if self._upload is None:
            self._upload = self._stack.enter_context(storage_for(self._path).writing(self._path, self._output))
        self._digest.update(line)
        self._upload.write(line)

    def __enter__(self) -> "Self":
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)
