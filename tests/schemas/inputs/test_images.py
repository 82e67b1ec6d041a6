import pytest

from recordmill.schemas.inputs.images import is_image_name, path_class


@pytest.mark.parametrize(
    ("separator", "path", "class_name"),
    [
        (None, "cat/1.jpg", "cat"),
        (None, "cat/more/1.jpg", "cat"),
        (None, "été 2/1.jpg", "été 2"),
        (None, "1.jpg", ""),
        (None, "", ""),
        ("_", "animals/of_prey/big_cat_0.jpg", "big_cat"),
        ("_", "cat_.jpg", "cat"),
        ("_", "cat_1.2.jpg", "cat"),
        ("_", "cat.jpg", ""),
        ("_", "cat_0/1.jpg", ""),
        ("_", "_0.jpg", ""),
        (" - ", "persian cat - 0.jpg", "persian cat"),
        (".", "cat.0.jpg", "cat"),
        (".", "cat.jpg", ""),
        ("__", "a_b__0.jpg", "a_b"),
    ],
)
def test_path_class(separator, path, class_name):
    assert path_class(path, separator) == class_name


@pytest.mark.parametrize("suffix", ["jpg", "tiff", "heif"])
def test_suffix_in_any_case_is_an_image(suffix):
    assert is_image_name(f"cat/a.{suffix}")
    assert is_image_name(f"cat/a.b.{suffix.upper()}")


@pytest.mark.parametrize(
    "path",
    [
        *("cat/notes.txt", "cat/a.jpg.txt", "cat/a.jpg~", "cat/jpg", "cat/a."),
        *("cat/.jpg", "cat/._1.jpg", ".cache/cat/1.jpg", "cat/.thumbnails/1.jpg"),
        *("__MACOSX/cat/1.jpg", "cat/.ipynb_checkpoints/1-checkpoint.jpg"),
        *("@eaDir/1.jpg/SYNOPHOTO_THUMB_M.jpg", "cat/@eaDir/1.jpg/SYNOPHOTO_THUMB_M.jpg"),
        *("a.jpg/readme", "", "@Recycle/1.jpg", "#snapshot/cat/1.jpg", "lost+found/1.jpg"),
    ],
)
def test_other_files_and_hidden_ones_are_no_images(path):
    assert not is_image_name(path)
