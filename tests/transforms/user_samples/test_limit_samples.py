import apache_beam as beam

from recordmill.beam import LimitImages, Sample
from tests.beam_pipeline import Pipeline


def test_warning_names_the_keyword(caplog):
    with Pipeline() as p:
        p | beam.Create([Sample("a.jpg", path="a.jpg", split="train")]) | LimitImages(max_per_class=4)
    assert "max_per_class=4 does nothing, because no image of train has a class or object" in caplog.text
    assert "--max-per-class" not in caplog.text
