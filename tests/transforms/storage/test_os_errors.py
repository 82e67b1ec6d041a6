import errno
import os

import pytest

from recordmill.transforms.storage.interface import UnreadableFileError
from recordmill.transforms.storage.os_errors import _MEANINGS, explain_os_error, explain_text, is_command_error


def os_error(number: int, *files: object) -> OSError:
    return OSError(number, os.strerror(number), *files)


@pytest.mark.parametrize("number", _MEANINGS)
def test_sentence_has_file_fault_and_cure(number):
    text = explain_os_error(os_error(number, "a b/c"))
    assert text.startswith(f"a b/c: {_MEANINGS[number].what}. {_MEANINGS[number].cure}")
    assert "Errno" not in text


@pytest.mark.parametrize(
    "error",
    [
        os_error(errno.ENOSPC, "out/x"),
        os_error(errno.ENOSPC),
        os_error(errno.EACCES, "it's \"x\": [Errno 2] No: 'y'"),
        os_error(errno.EACCES, b"\xff"),
        os_error(errno.EXDEV, "a", None, "b"),
        OSError(errno.EIO, "Forbidden: the bucket's words", "gs://b/x"),
        UnreadableFileError(errno.EISDIR, os.strerror(errno.EISDIR), "d"),
    ],
)
def test_error_text_from_beam_is_explained(error):
    assert explain_text(f"{type(error).__name__}: {error}") == explain_os_error(error)


@pytest.mark.parametrize(
    ("error", "start"),
    [
        (os_error(errno.ENOSPC, "temporary", None, "final"), "final: "),
        (OSError(errno.EIO, "given up", "gs://b/x"), "gs://b/x: given up"),
        (os_error(errno.EXDEV, "x"), f"x: {os.strerror(errno.EXDEV)}"),  # which has no meaning here
        (OSError("of a library"), "of a library"),
        (os_error(errno.EIO, 7), "file 7: "),
    ],
)
def test_sentence_begins_with_file_and_keeps_other_words(error, start):
    assert explain_os_error(error).startswith(start)


def test_long_path_is_shortened_in_its_middle():
    shown = explain_os_error(os_error(errno.ENAMETOOLONG, "a" * 5000 + "z")).partition(":")[0]
    assert (shown[0], shown[-1], len(shown)) == ("a", "z", 201)
    assert explain_os_error(os_error(errno.EIO, "a" * 200)).startswith("a" * 200 + ": ")


@pytest.mark.parametrize("text", ["KeyError: 'x'", "[Errno x] y", ""])
def test_not_an_os_error(text):
    assert explain_text(text) == ""


@pytest.mark.parametrize(("number", "expected"), [(errno.EROFS, True), (errno.ENOSPC, False), (errno.EXDEV, False)])
def test_whose_fault_it_is(number, expected):
    assert is_command_error(os_error(number)) is expected
