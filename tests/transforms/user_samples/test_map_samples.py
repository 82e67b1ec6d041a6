import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to

from recordmill.beam import MapClasses, Sample, SampleObject
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.inputs.annotations import Category, PanopticAnnotation, Segment, StuffAnnotation
from recordmill.schemas.inputs.files import File
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.transforms.join.observed_labels import ObservedLabel
from recordmill.transforms.shape.class_map import ClassMap
from recordmill.transforms.shape.finish_labels import map_by_name
from recordmill.transforms.user_samples.map_samples import collect_labels, map_sample
from tests.beam_pipeline import Pipeline

LABELS = LabelMap((Category(1, "car"), Category(3, "cat"), Category(6, "bus")), (Category(90, "sky", isthing=0),))
CLASS_MAP = ClassMap("MapClasses", {"car": "vehicle", "bus": "vehicle", "cat": "", "sky": ""})


def item(category: str, id_: int | None = None) -> SampleObject:
    return SampleObject(category, (1, 1, 5, 5), category_id=id_)


def mapped(**fields) -> Sample | None:
    _, mapping, _ = map_by_name(LABELS, CLASS_MAP)
    return map_sample(Sample("a.jpg", path="a.jpg", **fields), CLASS_MAP, LABELS, mapping)


def test_objects_of_sample():
    """An object without an id, or with that of another class, has none; a class that the labels lack keeps its name."""
    objects = (item("car", 1), item("bus", 6), item("cat", 3), item("car"), item("bus", 1), item("new", 8))
    assert mapped(objects=objects).objects == (
        item("vehicle", 1), item("vehicle", 1), item("vehicle"), item("vehicle"), item("new"),
    )  # fmt: skip


def test_other_labels_of_sample():
    panoptic = PanopticAnnotation(File("p.png"), "p.png", (Segment(5, 90, False), Segment(6, 6, False)))
    sample = mapped(
        class_name="bus",
        tags=["bus", "cat", "car"],
        stuff=[StuffAnnotation(1, 90, b"")],
        panoptic=panoptic,
        neg_category_ids=[6, 3],
        not_exhaustive_category_ids=[1],
    )
    expected = Sample(
        "a.jpg",
        path="a.jpg",
        class_name="vehicle",
        tags=("vehicle",),
        panoptic=PanopticAnnotation(File("p.png"), "p.png", (Segment(6, 1, False),), (5,)),
        not_exhaustive_category_ids=(1,),
    )
    assert sample == expected
    assert mapped(class_name="cat") is None


def test_classes_of_samples_that_nothing_read():
    labels = collect_labels(
        [ObservedLabel("category", "dog", 18), ObservedLabel("category", "cat", 17), ObservedLabel("class", "ant")]
    )
    assert [(category.id, category.name) for category in labels.all] == [(17, "cat"), (18, "dog"), (19, "ant")]
    only_image_classes = collect_labels([ObservedLabel("class", "cat"), ObservedLabel("class", "ant")])
    assert only_image_classes == LabelMap((Category(1, "ant"), Category(2, "cat")))
    with pytest.raises(ConfigError, match="MapClasses: Samples have segments"):
        collect_labels([ObservedLabel("segments")])


def test_faulty_samples_pass():
    """WriteDataset rejects them."""
    good = Sample("a.jpg", path="a.jpg", objects=(item("car", 1),))
    faulty = Sample("b.jpg", path="b.jpg", objects=({"category": "car"}, item("bus", 6)))  # type: ignore[arg-type]
    broken = Sample("c.jpg", path="c.jpg", tags=None)  # type: ignore[arg-type]
    with Pipeline() as p:
        samples = p | beam.Create([good, faulty, broken]) | MapClasses({"car": "vehicle", "bus": None})
        shown = samples | beam.Map(lambda sample: (sample.file_name, [*sample.objects], sample.tags))
        expected = [("a.jpg", [item("vehicle", 1)], ()), ("b.jpg", [{"category": "car"}], ()), ("c.jpg", [], None)]
        assert_that(shown, equal_to(expected))


@pytest.mark.parametrize("class_map", [{}, {"": "a"}, "missing.csv"])
def test_map_is_read_at_once(class_map):
    with pytest.raises(ConfigError):
        MapClasses(class_map)


def test_warning_of_samples_that_nothing_read(caplog):
    sample = Sample("a.jpg", path="a.jpg", objects=(item("car"), item("bus")))
    with Pipeline() as p:
        p | beam.Create([sample]) | MapClasses({"car": "bus", "bus": "train"})
    assert "MapClasses: 'car' becomes 'bus' and not 'train'" in caplog.text
