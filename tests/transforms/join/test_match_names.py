from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordmill.schemas.errors import CollidingImagesError
from recordmill.transforms.join.match_blocks import base_name, match_names


@pytest.mark.parametrize(
    ("images", "files", "pairs"),
    [
        (["1.jpg"], ["train/1.jpg"], {"1.jpg": "train/1.jpg"}),
        (["a/b/1.jpg"], ["b/1.jpg", "c/1.jpg"], {"a/b/1.jpg": "b/1.jpg"}),
        (["1.jpg"], ["1.jpg", "train/1.jpg"], {"1.jpg": "1.jpg"}),  # the same name is nearer than the same end
        (["1.jpg", "b/1.jpg"], ["1.jpg", "x/b/1.jpg"], {"1.jpg": "1.jpg", "b/1.jpg": "x/b/1.jpg"}),
        (["train/1.jpg", "val/1.jpg"], ["train/1.jpg"], {"train/1.jpg": "train/1.jpg"}),
        (["p/train/1.jpg", "p/val/1.jpg"], ["train/1.jpg"], {"p/train/1.jpg": "train/1.jpg"}),
        (["C:\\x\\train\\1.jpg"], ["train/1.jpg", "val/1.jpg"], {"C:\\x\\train\\1.jpg": "train/1.jpg"}),
        (["1.jpg"], [], {}),
        ([], ["1.jpg", "a/1.jpg"], {}),
        (["u\u0308/1.jpg"], ["x/\u00fc/1.jpg", "1.jpg"], {"u\u0308/1.jpg": "x/\u00fc/1.jpg"}),
    ],
)
def test_the_longest_common_end_decides(images, files, pairs):
    for ordered_images in permutations(images):
        for ordered_files in permutations(files):
            assert match_names(ordered_images, ordered_files, "suffix") == pairs


@pytest.mark.parametrize(
    ("match", "images", "files", "told"),
    [
        ("suffix", ["1.jpg"], ["a/1.jpg", "b/1.jpg"], "the images '1.jpg' could be the files 'a/1.jpg' and 'b/1.jpg'"),
        ("suffix", ["a/1.jpg", "b/1.jpg"], ["1.jpg"], "the images 'a/1.jpg' and 'b/1.jpg' could be the files '1.jpg'"),
        ("suffix", ["x/a/1.jpg", "y/a/1.jpg"], ["a/1.jpg"], "'x/a/1.jpg' and 'y/a/1.jpg' could be the files 'a/1.jpg'"),
        ("name", ["1.jpg"], ["1.jpg", "b/1.jpg"], "the images '1.jpg' could be the files '1.jpg' and 'b/1.jpg'"),
        (
            "name",
            ["1.jpg"],
            [f"{letter}/1.jpg" for letter in "edcba"],
            "'a/1.jpg' and 'b/1.jpg' and 'c/1.jpg' and 2 mo",
        ),
    ],
)
def test_what_could_be_either_of_two_is_an_error_that_names_both(match, images, files, told):
    with pytest.raises(CollidingImagesError) as caught:
        match_names(images, files, match)
    assert told in str(caught.value)
    assert f"--match {match}" in str(caught.value)


def test_a_name_that_is_there_once_on_each_side_is_enough():
    assert match_names(["a/1.jpg"], ["b/1.jpg"], "name") == {"a/1.jpg": "b/1.jpg"}
    assert match_names([], ["1.jpg", "b/1.jpg"], "name") == {}
    assert match_names(["1.jpg", "b/1.jpg"], [], "name") == {}


@given(st.sets(st.text("ab/", min_size=1, max_size=5).map(lambda folder: f"{folder}/1.jpg"), max_size=5))
def test_images_that_are_called_as_their_files_find_those(names):
    names = {name.strip("/") for name in names}
    spelled = {"/".join(part for part in name.split("/") if part) for name in names}
    assert match_names(spelled, spelled, "suffix") == {name: name for name in spelled}


@pytest.mark.parametrize("name", ["", "/", "."])
def test_names_that_are_hardly_any_have_a_last_part(name):
    assert base_name(name) in ("", ".")
