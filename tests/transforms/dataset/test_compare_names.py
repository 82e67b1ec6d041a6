import random

import pytest

from recordmill.schemas.names import NameSources
from recordmill.transforms.dataset.compare_names import (
    NO_NAMES,
    Difference,
    Names,
    Pair,
    add_names,
    describe_mismatch,
    pair_names,
)

SOURCES = NameSources(("img",), ("a.json",), "path")


def sampled(names, bundles: int = 3) -> Names:
    """Names combined as by a runner: in several bundles, one of them empty."""
    names = list(names)
    return add_names([*(Names.sample(names[place::bundles]) for place in range(bundles)), NO_NAMES])


def told(images: list[str], files: list[str], sources: NameSources = SOURCES, **more) -> str:
    return describe_mismatch(sampled(images), sampled(files), sources, **more)


def test_names_of():
    names = ["7", "3", "9", "1", "5", "8"]
    assert Names.sample(names)[:2] == (6, ("1", "3", "5", "7", "8"))
    assert sorted(Names.sample(names).compared) == sorted(names)
    assert sampled(names) == add_names([Names.sample(names), NO_NAMES]) == Names.sample(names[::-1])
    assert sampled([]) == add_names([]) == NO_NAMES


def test_of_many_names_those_are_kept_in_both_lots():
    """Thirty times as many files, of other endings and folders, in another order and other bundles."""
    images = [f"{number}.jpg" for number in range(3_000)]
    files = [f"{number * 7919 % 90_000:05}/{number}.png" for number in range(90_000)]
    random.Random(0).shuffle(files)
    one, other = sampled(images, 7), sampled(files, 2)
    assert (one.number, len(one.compared), other.number, len(other.compared)) == (3_000, 1_000, 90_000, 1_000)
    pairs = [pair for pair in pair_names(one.compared, other.compared) if pair.file]
    assert len(pairs) > 20
    assert {pair.difference for pair in pairs} == {Difference.ENDING}
    assert sampled(files[::-1], 5) == other


@pytest.mark.parametrize(
    ("image", "file", "difference", "folder"),
    [
        ("IMG_1.JPG", "IMG_1.jpg", Difference.CASE, ""),
        ("x/Ａ.jpg", "x/a.jpg", Difference.CASE, ""),  # a full-width letter
        ("X/a.jpg", "x/a.jpg", Difference.CASE, ""),
        ("a.jpg", "train/b/a.jpg", Difference.DEEPER, "train/b"),
        ("images/train/a.jpg", "a.jpg", Difference.PREFIX, "images/train"),
        ("images\\a.jpg", "images/a.jpg", Difference.SPELLING, ""),
        ("/images/a.jpg", "images/a.jpg", Difference.SPELLING, ""),
        ("/data/a.jpg", "a.jpg", Difference.PREFIX, "data"),
        ("train/a.jpg", "val/a.jpg", Difference.FOLDER, ""),
        ("a.png", "a.jpg", Difference.ENDING, ""),
        ("Stra%C3%9Fe%201.jpg", "x/Straße 1.jpg", Difference.ENCODED, ""),
        ("0.jpg", "00000.jpg", Difference.ZEROS, ""),
        ("img_007.jpg", "img_7.jpg", Difference.ZEROS, ""),
        ("7", "007.jpg", Difference.ZEROS_AND_ENDING, ""),
        ("1a2b3c4d-cat.jpg", "cat.jpg", Difference.HASH, ""),
        ("a.jpg", "", Difference.NOTHING_IN_COMMON, ""),
    ],
)
def test_how_two_names_differ(image, file, difference, folder):
    assert list(pair_names([image], [file] if file else ["other.jpg"])) == [Pair(difference, image, file, folder)]


def test_the_likeliest_file_is_taken():
    (pair,) = pair_names(["a.jpg"], ["masks/a.png", "x/A.jpg", "b/a.jpg", "a.png"])
    assert (pair.difference, pair.file) == (Difference.CASE, "x/A.jpg")
    (pair,) = pair_names(["a.jpg"], ["masks/a.png", "b/a.jpg"])
    assert (pair.difference, pair.file) == (Difference.DEEPER, "b/a.jpg")


@pytest.mark.parametrize(
    ("images", "files", "cause", "cure"),
    [
        (["1.jpg", "2.jpg"], ["t/1.jpg", "t/2.jpg"], "subfolder 't'", "Use --match suffix or --images img/t."),
        (["1.jpg", "2.jpg"], ["t/1.jpg", "v/2.jpg"], "subfolder", "compared). Use --match suffix."),
        (["i/1.jpg"], ["1.jpg"], "begin with 'i', but", "(1 of 1 names compared). Use --match suffix."),
        (["img/1.jpg"], ["1.jpg"], "begin with 'img', but", "Use --match suffix or --images ./."),
        (["/img/1.jpg"], ["1.jpg"], "Names are absolute paths: ", "compared). Use --match suffix."),
        (["https://x.org/1.jpg"], ["1.jpg"], "Names are absolute paths: ", "Use --match suffix."),
        (["C:\\i\\1.jpg"], ["1.jpg"], "Names are absolute paths: ", "Use --match suffix."),
        (["i\\1.jpg"], ["i/1.jpg"], "Names are Windows paths: ", "Use --match suffix."),
        (["i\\1.jpg"], ["1.jpg"], "Names are Windows paths: ", "Use --match suffix."),
        (["a/1.jpg"], ["b/1.jpg"], "differ only in their folders: 'a/1.jpg' may be 'b/1.jpg'", "--match suffix."),
        (["IMG_1.JPG"], ["img_1.jpg"], "differ in case", "Rename the files"),
        (["%31.jpg"], ["1.jpg"], "Names are percent-encoded: '%31.jpg' may be '1.jpg' (1 of 1", "unquote"),
        (["1.jpg"], ["01.jpg"], "differ in leading zeros: '1.jpg' may be '01.jpg'", "Rename the files"),
        (["1.png"], ["1.jpg"], "differ in their file extension: '1.png' may be '1.jpg'", "converted"),
        (["1"], ["01.jpg"], "differ in leading zeros and in their ending: '1' may be '01.jpg'", "converted, correct"),
        (
            ["1.jpg"],
            ["a/b.zip"],
            "Archives within the folders of images are not read",
            "Unpack 'a/b.zip', or use --images img/a/b.zip.",
        ),
        (["val_1.jpg"], ["train_1.jpg"], "No file in the folder has such a name", "Is it the folder of another split?"),
    ],
)
def test_cause_and_cure_follow_comparison(images, files, cause, cure):
    text = told(images, files, suffix_finds_all=True)
    shown = ", ".join(map(repr, images)), ", ".join(map(repr, files))
    assert text.startswith(f"a.json names {shown[0]}; img has {shown[1]}. ")
    assert cause in text
    assert cure in text


def test_three_names_of_many_are_named_and_commonest_cause():
    text = told(["1.jpg", "2.jpg", "3.jpg", "4.jpg", "5.jpg"], ["t/3.jpg", "1.JPG", "t/2.jpg", "z.jpg"])
    assert text.startswith("a.json names '1.jpg', '2.jpg', '3.jpg' …; img has '1.JPG', 't/2.jpg', 't/3.jpg' …. ")
    assert "'2.jpg' may be 't/2.jpg' (2 of 5 names compared)" in text


def test_archive_within_an_archive_is_not_to_be_given():
    sources = NameSources(("a.zip",), ("a.json",), "path")
    assert told(["1.jpg"], ["b.zip"], sources).endswith(
        "Archives within the folders of images are not read. Unpack 'b.zip'."
    )


@pytest.mark.parametrize("match", ["", "suffix", "name"])
def test_no_flag_is_advised_that_verb_lacks_or_given(match):
    sources = NameSources(("img", "more"), ("a.csv", "b.csv"), match)
    text = told(["i/1.jpg"], ["1.jpg"], sources)
    assert text.startswith("a.csv b.csv names 'i/1.jpg'; img more has '1.jpg'. ")
    assert text.endswith("(1 of 1 names compared). Correct the names.")


def test_images_beside_file_that_names_them_are_named_of():
    for beside, is_all, cure in (
        ("data/train", True, "They are in data/train. Use --images data/train."),
        ("data/a b", False, "They are in data/a b. Use --images img --images 'data/a b'."),
        (".", False, "They are in the current folder. Use --images ./."),  # img is within it
    ):
        text = told(["1.jpg"], ["x.jpg"], beside=beside, is_all=is_all)
        assert text.endswith(cure)


@pytest.mark.parametrize(
    ("images", "files", "more", "cure"),
    [
        (["1.jpg"], ["x.jpg"], {"beside": "own"}, "Use own as DATA."),
        (["1.jpg"], ["x.jpg"], {"beside": "own", "is_all": False}, "Use img own as DATA."),
        (["1.jpg"], ["a.zip"], {}, "Unpack 'a.zip', or use img/a.zip as DATA."),
        (["1.jpg"], ["x.jpg"], {}, "DATA can be several folders."),
        (["1.jpg"], ["t/1.jpg"], {}, "Use img/t as DATA."),
        (["img/1.jpg"], ["1.jpg"], {}, "Use ./ as DATA."),
    ],
)
def test_cures_name_data(images, files, more, cure):
    sources = NameSources(("img",), ("a.csv",), images_option="DATA")
    text = told(images, files, sources, **more)
    assert text.endswith(cure)
    assert "--images" not in text


@pytest.mark.parametrize(
    ("most_folders", "images", "files", "more", "cure"),
    [
        (1, ["1.jpg"], ["x.jpg"], {"beside": "own", "is_all": False}, "Use --images own."),
        (1, ["1.jpg"], ["x.jpg"], {}, "Is it the folder of another split?"),
        (0, ["1.jpg"], ["x.jpg"], {"beside": "own"}, "Is it the folder of another split?"),
        (0, ["1.jpg"], ["t/1.jpg"], {}, "Correct the names."),
        (0, ["1.jpg"], ["a.zip"], {}, "Unpack 'a.zip'."),
    ],
)
def test_no_folder_is_advised_that_the_format_refuses(most_folders, images, files, more, cure):
    sources = NameSources(("img",), ("a.csv",), most_folders=most_folders)
    assert told(images, files, sources, **more).endswith(cure)


def test_folder_above_is_named():
    sources = NameSources(("data/own/img/",), ("a.csv",), "")
    assert told(["img/1.jpg", "img/2.jpg"], ["1.jpg", "2.jpg"], sources).endswith("compared). Use --images data/own/.")
    assert told(["n/1.jpg"], ["1.jpg"], NameSources(("own",), ("a.csv",), "")).endswith("Correct the names.")


def test_where_other_images_have_files_folder_is_not_doubted():
    assert told(["1.jpg"], ["t/1.jpg"], is_all=False).endswith("Correct the names.")  # not the folder img/t
    text = told(["1.jpg"], [], is_all=False)
    assert "img has no other file" in text
    assert "Are some images in another folder?" in text
    assert "split" not in text


def test_nothing_is_said_of_folder_that_was_not_looked_into():
    text = told(["/1.jpg"], [], NameSources(("img",), ("a.json",), "path", is_listed=False))
    assert text == "a.json names '/1.jpg'; with --no-list, the contents of img are not known."
