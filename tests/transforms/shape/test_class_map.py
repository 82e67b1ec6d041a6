import re

import pytest

from recordmill.schemas.errors import CategoryError, ConfigError, NoSuchClassError
from recordmill.schemas.inputs.annotations import Category
from recordmill.schemas.inputs.labels import LabelMap
from recordmill.transforms.shape.class_map import (
    ClassMap,
    chain_warnings,
    class_map_of,
    new_class_names,
    read_class_map,
)


def write(folder, text: str, name: str = "map.csv") -> str:
    (folder / name).write_bytes(text.encode())
    return str(folder / name)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("map.csv", "car,vehicle\nbus,vehicle\ndog,\n", {"car": "vehicle", "bus": "vehicle", "dog": ""}),
        ("map.csv", "From,TO\r\ncar,vehicle\r\n", {"car": "vehicle"}),
        ("map.csv", "\ufeffto,from\nvehicle,car\n", {"car": "vehicle"}),
        ("map.csv", ' car , a bus \n\n"a, b","c ""d"""\n*,rest', {"car": "a bus", "a, b": 'c "d"', "*": "rest"}),
        ("map.csv", "cafe\u0301,café", {"café": "café"}),
        ("map.yaml", "{car: vehicle, no: 02, '*': }", {"car": "vehicle", "no": "02", "*": ""}),
        ("MAP.YML", "- {from: car, to: bus}\n- {to: ~, from: dog}\n- from: a\n", {"car": "bus", "dog": "", "a": ""}),
    ],
)  # fmt: skip
def test_forms_of_map(tmp_path, name, text, expected):
    assert read_class_map(write(tmp_path, text, name)).names == expected


_ALIASES = (f"&a{level} [{', '.join(9 * [f'*a{level - 1}' if level else 'x'])}]" for level in range(12))
YAML_BOMB = f"a: [{', '.join(_ALIASES)}]"
"""A list of 9^12 items, by aliases of aliases."""


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        (
            "map.csv",
            "a,b\nc\n",
            ", line 2 is not the name of a class, a comma and its new name, empty to drop the class: 'c'.",
        ),
        (
            "map.csv",
            "a;b\n",
            ", line 1 is not the name of a class, a comma and its new name, empty to drop the class: 'a;b'.",
        ),
        ("map.csv", "from,to,comment\n", ", line 1 is not the name of a class, a comma and its new name"),
        ("map.csv", "a,b\nc,d\0\n", ", line 2 has a NUL. Take it out"),
        ("map.csv", "a,b\n\na,c\n", ", line 3: class 'a' is given twice"),
        ("map.csv", "a,b\n ,c\n", ", line 2: the name of the class is empty"),
        ("map.csv", 'a,"b', ", line 1 is not CSV"),
        ("map.csv", "from,to\n", " has no classes"),
        ("map.csv", "", " has no classes"),
        ("map.yaml", "a: b: c", ", line 1: not valid YAML"),
        ("map.yaml", "{a: b, a: c}", " is not valid YAML: the key 'a' is given twice"),
        ("map.yaml", "[a, b]", ", entry 1 is not a pair of names"),
        ("map.yaml", "- {from: a, to: b}\n- {from: a, into: b}", ", entry 2 is not a pair of names"),
        ("map.yaml", "a: [b]", ", entry 1: the new name of 'a' is not a text"),
        ("map.yaml", YAML_BOMB, ", entry 1: the new name of 'a' is not a text"),
        ("map.yaml", "~: b", ", entry 1: the name of the class is not a text"),
        ("map.yaml", "", ", entry 1 is not a pair of names"),
    ],
)
def test_files_that_are_no_map(tmp_path, name, text, fault):
    path = write(tmp_path, text, name)
    with pytest.raises(ConfigError, match=re.escape(f"--class-map {path}{fault}")):
        read_class_map(path)


def test_text_of_another_encoding(tmp_path):
    (tmp_path / "map.csv").write_bytes("é,e".encode("latin-1"))
    with pytest.raises(ConfigError, match="cannot be read as UTF-8 text"):
        read_class_map(str(tmp_path / "map.csv"))


CLASSES = "The classes are bus, car, cat, sky"
LABELS = LabelMap((Category(1, "car"), Category(2, "cat"), Category(3, "bus ")), (Category(90, "sky"),))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({"car": "vehicle", "bus": "vehicle"}, {1: "vehicle", 2: "cat", 3: "vehicle", 90: "sky"}),
        ({"car": "cat", "cat": "car"}, {1: "cat", 2: "car", 3: "bus ", 90: "sky"}),
        ({"cat": "", "sky": ""}, {1: "car", 3: "bus "}),
        ({"car": "car", "*": ""}, {1: "car"}),
        ({"car": "", "*": "other"}, {2: "other", 3: "other", 90: "other"}),
    ],
)
def test_map_is_applied_once(names, expected):
    assert new_class_names(LABELS, ClassMap("map.csv", names)) == expected


@pytest.mark.parametrize(
    ("names", "error", "text"),
    [
        ({"carr": "x"}, NoSuchClassError, f"no class is called 'carr' (did you mean 'car'?). {CLASSES}"),
        ({"CAT": "x"}, NoSuchClassError, f"no class is called 'CAT' (did you mean 'cat'?). {CLASSES}"),
        ({"zebra": "x"}, NoSuchClassError, f"no class is called 'zebra'. {CLASSES}"),
        (
            {"carr": "x", "zebra": ""},
            NoSuchClassError,
            f"no class is called 'carr' (did you mean 'car'?), 'zebra'. {CLASSES}",
        ),
        (
            dict.fromkeys(["carr", *(f"class {number}" for number in range(2000))], "x"),
            NoSuchClassError,
            "no class is called 'carr' (did you mean 'car'?), 'class 0', 'class 1', 'class 2', 'class 3' and 1,996 more"
            f". {CLASSES}",
        ),
        ({"*": ""}, CategoryError, "drops all classes (bus , car, cat, sky). Keep one of them"),
    ],
)
def test_names_that_do_not_exist(names, error, text):
    with pytest.raises(error, match=f"^map.csv:? {re.escape(text)}$"):
        new_class_names(LABELS, ClassMap("map.csv", names))


@pytest.mark.parametrize(
    ("names", "warnings"),
    [
        ({"car": "cat", "cat": "sky"}, ["'car' becomes 'cat' and not 'sky'"]),
        ({"car": "cat", "cat": ""}, ["'car' becomes 'cat' and not dropped"]),
        ({"car": "cat", "cat": "sky", "sky": "car"}, []),
        ({"car": "cat", "cat": "car"}, []),
        ({"car": "cat"}, []),
        ({"car": "cat", "cat": "cat"}, []),
        ({"car": "cat", "*": "car"}, ["'bus ', 'sky' becomes 'car' and not 'cat'"]),
    ],
)
def test_chain_of_names_is_warning(names, warnings):
    texts = list(chain_warnings(LABELS, ClassMap("map.csv", names)))
    assert [text.removeprefix("map.csv: ").rpartition(", as a map is applied once")[0] for text in texts] == warnings


def test_map_of_pairs():
    pairs = [("", "car", "vehicle"), ("", "cat", "")]
    assert class_map_of("MapClasses", pairs) == ClassMap("MapClasses", {"car": "vehicle", "cat": ""})
