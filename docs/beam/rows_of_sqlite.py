"""Write images and objects that a SQLite database names. docs/beam.md has more."""

import csv
import sqlite3

import apache_beam as beam

from recordmill.beam import Sample, SampleObject, WriteDataset

with sqlite3.connect("objects.sqlite") as database, open("sample/objects.csv") as file:
    database.execute("CREATE TABLE objects (image TEXT, shape TEXT, x REAL, y REAL, width REAL, height REAL)")
    rows = [[row[name] for name in ("image", "shape", "x", "y", "width", "height")] for row in csv.DictReader(file)]
    database.executemany("INSERT INTO objects VALUES (?, ?, ?, ?, ?, ?)", rows)


def read_rows(path):
    with sqlite3.connect(path) as database:
        yield from database.execute("SELECT image, shape, x, y, width, height FROM objects ORDER BY image, x, y")


def to_sample(image, rows):
    objects = [SampleObject(shape, (x, y, width, height)) for shape, x, y, width, height in sorted(rows)]
    return Sample(image, path=f"sample/images/{image}", objects=objects)


with beam.Pipeline() as p:
    rows = p | beam.Create(["objects.sqlite"]) | beam.FlatMap(read_rows)
    groups = rows | beam.Map(lambda row: (row[0], row[1:])) | beam.GroupByKey()
    groups | beam.MapTuple(to_sample) | WriteDataset("of-sqlite", split={"train": 0.8, "val": 0.2})
