"""Random tables as files of each format: records have the values that Arrow and Python have."""

import csv
import datetime as dt
import json
import random
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recordmill.schemas.inputs.tables import RowsReading
from recordmill.transforms.rows.find_rows import rows_files
from recordmill.transforms.rows.observe_columns import TableStats, observe
from recordmill.transforms.rows.read_rows import read_rows
from recordmill.transforms.table.choose_schema import choose_schema, numbered_columns
from recordmill.transforms.table.make_records import RowEncoder
from recordmill.transforms.table.table_options import TableOptions

EPOCH = dt.datetime(1970, 1, 1)
Draw = Callable[[random.Random], Any]


class Kind(NamedTuple):
    """Kind of a column: its Arrow type, a random value, and the values of its feature by format; None if a format has
    no such values. A dictionary's values are names, whose numbers depend on the other rows."""

    type: pa.DataType
    draw: Draw
    parquet: Callable[[Any], list] | None = None
    json: Callable[[Any], list] | None = None
    csv: Callable[[Any], list] | None = None


def of_number(value: Any) -> list:
    return [value]


def of_text(value: Any) -> list:
    return [str(value).encode()]


def of_texts(values: Any) -> list:
    return [value.encode() for value in values]


def of_json_time(value: Any) -> list:
    return [value.isoformat().encode()]


def draw_word(rng: random.Random) -> str:
    return rng.choice(["cat", "hot dog", 'q"uote', "a,b", "two\nlines", "é", "007", "x" * 40])


def draw_list(item: Draw, length: int | None = None) -> Draw:
    return lambda rng: [item(rng) for _ in range(rng.randrange(4) if length is None else length)]


def draw_whole(rng: random.Random) -> int:
    return rng.choice([0, -1, rng.randrange(-1000, 1000), rng.randrange(-(1 << 63), 1 << 63)])


def draw_quarter(rng: random.Random) -> float:
    return rng.randrange(-4000, 4000) / 4 + 0.25 * rng.randrange(2)


def draw_time(rng: random.Random) -> dt.datetime:
    return EPOCH + dt.timedelta(microseconds=rng.randrange(-(1 << 50), 1 << 50))


ENUM, FIXED = pa.dictionary(pa.int8(), pa.string()), pa.list_(pa.float32(), 2)
KINDS = {
    "int": Kind(pa.int64(), draw_whole, of_number, of_number, of_number),
    "small": Kind(pa.uint8(), lambda rng: rng.randrange(256), of_number, of_number, of_number),
    "float": Kind(pa.float64(), draw_quarter, of_number, of_number, of_number),
    "single": Kind(pa.float32(), draw_quarter, of_number, of_number, of_number),
    "text": Kind(pa.string(), draw_word, of_text, of_text, of_text),
    "view": Kind(pa.large_string(), draw_word, of_text, of_text, of_text),
    "bool": Kind(pa.bool_(), lambda rng: rng.random() < 0.5, of_number, of_number, of_number),
    "ints": Kind(pa.list_(pa.int32()), draw_list(lambda rng: rng.randrange(9)), list, list),
    "floats": Kind(pa.large_list(pa.float64()), draw_list(draw_quarter), list, list),
    "texts": Kind(pa.list_(pa.string()), draw_list(draw_word), of_texts, of_texts),
    "fixed": Kind(FIXED, draw_list(draw_quarter, 2), list, list),
    "enum": Kind(ENUM, draw_word, of_number, of_text, of_text),
    "enums": Kind(pa.list_(ENUM), draw_list(draw_word), list, of_texts),
    "date": Kind(pa.date32(), lambda rng: draw_time(rng).date(), lambda day: [(day - EPOCH.date()).days], of_json_time),
    "instant": Kind(
        pa.timestamp("us"), draw_time, lambda time: [(time - EPOCH) // dt.timedelta(microseconds=1)], of_json_time
    ),
    "clock": Kind(pa.time64("us"), lambda rng: draw_time(rng).time(), of_json_time, of_json_time, of_json_time),
    "took": Kind(
        pa.duration("s"),
        lambda rng: dt.timedelta(seconds=rng.randrange(1, 60)),
        lambda took: of_text(f"PT{took.seconds}S"),
    ),
    "decimal": Kind(
        pa.decimal128(12, 2), lambda rng: Decimal(rng.randrange(-9999, 9999)) / 4, lambda number: [float(number)]
    ),
}
KINDS["date"] = KINDS["date"]._replace(csv=KINDS["date"].parquet)
KINDS["instant"] = KINDS["instant"]._replace(csv=KINDS["instant"].parquet)


def draw_table(rng: random.Random, format_: str) -> dict[str, list]:
    """Columns of random kinds, by kind and number."""
    known = [name for name, kind in KINDS.items() if getattr(kind, format_)]
    rows, holes = rng.randrange(1, 12), rng.choice([0, 0.3])
    names = [f"{name}_{number}" for number, name in enumerate(rng.choices(known, k=rng.randrange(1, 7)))]
    return {
        name: [None if rng.random() < holes else kind_of(name).draw(rng) for _ in range(rows)]
        for name in ["id_small", *names]
    }


def kind_of(name: str) -> Kind:
    return KINDS["small" if name == "id_small" else name.rpartition("_")[0]]


def write_files(folder: Path, rng: random.Random, format_: str, columns: dict[str, list]) -> list[tuple[str, slice]]:
    """Write some files in folders of partitions, and return their paths with their rows."""
    rows = len(columns["id_small"])
    cuts = sorted(rng.sample(range(rows + 1), rng.randrange(min(3, rows + 1))))
    files = []
    for number, (start, end) in enumerate(zip([0, *cuts], [*cuts, rows], strict=True)):
        path = folder / f"part={number}" / f"x.{'jsonl' if format_ == 'json' else format_}"
        path.parent.mkdir()
        part = {name: values[start:end] for name, values in columns.items()}
        WRITERS[format_](path, part, rng)
        files.append((str(path), slice(start, end)))
    return files


def write_parquet(path: Path, columns: dict[str, list], rng: random.Random) -> None:
    arrays = {name: pa.array(values, kind_of(name).type) for name, values in columns.items()}
    arrays = {
        name: pa.StructArray.from_arrays([array], ["m"]) if is_nested(name) else array for name, array in arrays.items()
    }
    pq.write_table(pa.table(arrays), path, row_group_size=rng.choice([1, 2, 100]))


def is_nested(name: str) -> bool:
    """True for columns that are a member of a struct, if the format has structs."""
    return name.endswith(("0", "2"))


def write_json(path: Path, columns: dict[str, list], rng: random.Random) -> None:
    def member(name: str, value: Any) -> Any:
        value = value.isoformat() if isinstance(value, dt.date | dt.time) else value
        return {"m": value} if is_nested(name) else value

    rows = zip(*columns.values(), strict=True)
    objects = ({name: member(name, value) for name, value in zip(columns, row, strict=True)} for row in rows)
    path.write_text("".join(json.dumps(row, ensure_ascii=rng.random() < 0.5) + "\n" for row in objects))


def write_csv(path: Path, columns: dict[str, list], rng: random.Random) -> None:
    def cell(value: Any) -> str:
        return "" if value is None else value.isoformat() if isinstance(value, dt.date | dt.time) else str(value)

    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter=rng.choice(",;\t"), lineterminator=rng.choice(["\n", "\r\n"]))
        writer.writerow(columns)
        writer.writerows([cell(value) for value in row] for row in zip(*columns.values(), strict=True))


WRITERS = {"parquet": write_parquet, "json": write_json, "csv": write_csv}


def convert(paths: list[str], **more: Any) -> tuple[list[dict[str, list]], dict[str, tuple[str, ...]]]:
    """The records of files in their order, as TensorFlow reads them; and the names of enums."""
    import tensorflow as tf

    files, stats = list(rows_files(paths)), TableStats()
    options = TableOptions(data=tuple(paths), output="out", **more)
    batches = [batch for file in files for batch in read_rows(file, RowsReading())]
    for file in files:
        for batch in read_rows(file, RowsReading()):
            stats.add(observe(batch, file.number, numbered_columns(options, {})))
    chosen = choose_schema(stats, options, {}, None, files)
    encode = RowEncoder(chosen, options, ("train",))
    records = []
    for batch in batches:
        made = encode(batch)
        assert made.bad == []
        for record in made.records.to_pylist():
            features = tf.train.Example.FromString(record).features.feature
            records.append({name: list(getattr(f, f.WhichOneof("kind")).value) for name, f in features.items()})
    values = {column.name: column.values for column in chosen.schema.columns}
    return records, values | {"classes": tuple(category.name for category in chosen.labels.categories)}


def expected_values(format_: str, name: str, value: Any, enums: tuple[str, ...]) -> list:
    if value is None:
        return []
    values = getattr(kind_of(name), format_)(value)
    if values and isinstance(values[0], float):
        return np.float32(values).tolist()
    return [enums.index(item) if isinstance(item, str) else item for item in values]


@pytest.mark.parametrize("format_", ["parquet", "json", "csv"])
@pytest.mark.parametrize("seed", range(12))
def test_records_have_the_values_of_the_files(tmp_path, format_, seed):
    for case in range(4):
        rng = random.Random(f"{seed} {case}")
        columns = draw_table(rng, format_)
        (tmp_path / str(case)).mkdir()
        files = write_files(tmp_path / str(case), rng, format_, columns)
        records, enums = convert([path for path, _ in files])
        keys = {name: f"{name}.m" if is_nested(name) and format_ != "csv" else name for name in columns}
        assert {key for record in records for key in record} <= {*keys.values(), "part"}
        rows = [
            (number, row) for number, (_, part) in enumerate(files) for row in range(len(columns["id_small"]))[part]
        ]
        for (number, row), record in zip(rows, records, strict=True):
            assert record["part"] == [number]
            for name, values in columns.items():
                expected = expected_values(format_, name, values[row], enums.get(keys[name], ()))
                assert record.get(keys[name], []) == expected, (case, name, values[row])


LABELS: dict[str, Draw] = {
    "int": lambda rng: rng.choice([0, 1, 2, 10, -3, (1 << 53) + 1]),
    "float": lambda rng: float(rng.choice([0, 1, 10, -3, 1 << 53])),
    "fraction": lambda rng: rng.choice([0.5, 2.0]),
    "bool": lambda rng: rng.random() < 0.5,
}


@pytest.mark.parametrize("seed", range(60))
def test_labels_of_several_files_are_one_class_if_they_are_equal(tmp_path, seed):
    rng = random.Random(seed)
    paths, labels = [], []
    for number in range(rng.randrange(1, 4)):
        draw = LABELS[rng.choice([*LABELS])]
        values = [draw(rng) for _ in range(rng.randrange(1, 6))]
        format_ = rng.choice(["parquet", "json", "csv"])
        path = tmp_path / f"{number}.{'jsonl' if format_ == 'json' else format_}"
        if format_ == "parquet":
            pq.write_table(pa.table({"c": values}), path)
        else:
            WRITERS[format_](path, {"c": values, "row": [*range(len(values))]}, rng)
        paths.append(str(path))
        labels += values
    records, names = convert(paths, label="c")
    classes = names["classes"]
    assert len(classes) == len(set(labels)), (classes, labels)
    numbers = [{"true": 1, "false": 0}.get(name.lower()) if name.isalpha() else Decimal(name) for name in classes]
    assert [numbers[record["c"][0]] for record in records] == labels
