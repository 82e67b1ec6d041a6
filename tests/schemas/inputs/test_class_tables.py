import pytest

from recordmill.schemas.inputs.class_tables import is_class_table


@pytest.mark.parametrize(
    ("name", "columns", "expected"),
    [
        ("train/_classes.csv", {"Pixel Value": [0, 1], " Class": ["sky", "car"]}, True),
        ("class_dict.csv", {"name": ["sky"], "r": [0], "g": [0], "b": [9]}, True),
        ("_classes.csv", {"filename": ["0.jpg"], "sky": [1], "car": [0]}, False),  # Roboflow's classes of images
        ("classes.csv", {"id": [0, 1, 2], "class": ["car", "sky", "car"]}, False),  # classes of images 0.jpg, …
        ("labels.csv", {"id": [0, 1], "class": ["sky", "car"]}, False),
        ("_classes.csv", {}, False),
    ],
)
def test_is_class_table(name, columns, expected):
    assert is_class_table(name, columns) is expected
