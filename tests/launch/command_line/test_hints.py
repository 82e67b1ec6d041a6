"""What was probably meant by a flag that a verb does not know."""

import pytest

from recordmill.launch.command_line.hints import _ELSEWHERE, hint
from recordmill.launch.command_line.verbs import VERBS, fields_of


def flags(verb: str) -> list[str]:
    return [each.flag for each in fields_of(verb)]


@pytest.mark.parametrize(
    ("flag", "meant"),
    [
        ("--num_shards", "--num-shards"),
        ("--shards", "--num-shards"),
        ("--annotations", "--instances"),
        ("--Images", "--images"),
        # create_coco_tf_record.py of Model Garden, and of the Object Detection API
        ("--image_dir", "--images"),
        ("--image_info_file", "--image-info"),
        ("--object_annotations_file", "--instances"),
        ("--caption_annotations_file", "--captions"),
        ("--panoptic_annotations_file", "--panoptic"),
        ("--panoptic_masks_dir", "--panoptic-masks"),
        ("--output_file_prefix", "--output"),
        ("--include_masks", "--masks png"),
        ("--train_image_dir", "--images"),
        ("--val_annotations_file", "--instances"),
        ("--output_dir", "--output"),
        # others
        ("--annFile", "--instances"),
        ("--imgsz", "--max-side"),
        ("--val", "--split val"),
        ("--val-split", "--split train=0.8,val=0.2"),
        ("--group-by", "--group-from"),
        ("-o", "--output"),
        ("-j", "--workers"),
        ("--classes", "--categories"),
        ("--imagse", "--images"),
    ],
)
def test_flags_of_other_tools_and_misspelt_ones(flag, meant):
    found = hint(flag, flags("coco"))
    assert found.text == f"unknown flag {flag}; did you mean {meant}?"
    assert found.meant == ("" if " " in meant else meant)


@pytest.mark.parametrize(
    ("verb", "flag", "meant"), [("folder", "--annotations", "--labels"), ("folder", "--categories", "--classes")]
)
def test_what_is_meant_depends_on_the_verb(verb, flag, meant):
    assert hint(flag, flags(verb)).meant == meant


def test_nothing_is_meant_that_the_verb_lacks():
    assert hint("--image_dir", flags("sample")).meant == ""


def test_every_name_stands_for_flags_that_there_are():
    known = {flag for verb in VERBS for flag in flags(verb)}
    assert {meant.split()[0] for meant in _ELSEWHERE} <= known
    for verb in VERBS:
        names = {name for meant, names in _ELSEWHERE.items() for name in names.split()}
        meants = [
            [m for m in _ELSEWHERE if name in _ELSEWHERE[m].split() and m.split()[0] in flags(verb)] for name in names
        ]
        assert [each for each in meants if len(each) > 1] == []


def test_flags_of_beam():
    assert hint("--temp_location", flags("coco")).text.endswith("Beam's flags go after a lone --")
    assert hint("--region", flags("coco")).text.endswith("Beam's flags go after a lone --")
