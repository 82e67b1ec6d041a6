"""`recordmill table --image-column`: rows of tables, with the pictures that they name, become TFRecord shards.

Rows move between steps, encoded, as annotations of pictures do; pictures are read where a shard is written.
"""

import apache_beam as beam
import msgspec

from recordmill.pipelines.convert import Contents, Gathered
from recordmill.pipelines.table import (
    TableJob,
    choose_columns,
    input_rows,
    labels_of,
    rows_recipe,
    table_of,
    warnings_of,
)
from recordmill.schemas.layouts import TABLE
from recordmill.schemas.picture_features import DECODED_PICTURE, picture_of_row
from recordmill.transforms.dataset.facts import FACTS
from recordmill.transforms.folder.read_folder import RANGE_BITS, FolderRules, JoinFiles
from recordmill.transforms.images.list_images import ListFiles
from recordmill.transforms.join.match_rows import MatchRows
from recordmill.transforms.shards.encode_pictures import EncodePictures
from recordmill.transforms.table.count_rows import OF_FILE
from recordmill.transforms.table.read_picture_rows import BUCKETS, ReadPictureRows


def gather(p: beam.Pipeline, job: TableJob) -> Gathered:
    """Rows, with their classes and splits, and the files that they name."""
    options = job.options
    files = p | "Files" >> beam.Create(job.files)
    pictures = picture_of_row(options.pictures.raw_size)
    columns = choose_columns(files, job, (DECODED_PICTURE, *(feature.name for feature in pictures)))
    chosen = columns.chosen
    rows = files | "ReadPictureRows" >> ReadPictureRows(
        chosen, rows_recipe(job, options.output), options.image_column or "", options.images
    )
    list_files = ListFiles(options.output, "path", BUCKETS)
    listed = p | "ImageFolders" >> beam.Create(options.images) | "ListImages" >> list_files
    matched = (rows.rows, listed) | "MatchRows" >> MatchRows("path", None, options.seed, RANGE_BITS)
    rules = FolderRules(options.output, None, (), job.splits, options.seed, "", "")
    joined = (matched.rows,) | "JoinFiles" >> JoinFiles(rules)
    counted = rows[OF_FILE] | "InputRows" >> beam.Map(input_rows)
    return Gathered(
        joined.blocks,
        chosen | "Labels" >> beam.Map(labels_of),
        chosen | "Table" >> beam.Map(table_of, pictures),
        (rows[FACTS], counted, matched[FACTS], joined[FACTS]),
        warnings_of(chosen, job),
        columns.texts(rows[OF_FILE]),
    )


def contents(job: TableJob) -> Contents:
    """Records of rows with their pictures; the columns are not known before the job."""
    options = job.options
    pictures = picture_of_row(options.pictures.raw_size)
    return Contents(
        msgspec.structs.replace(TABLE, features=pictures), EncodePictures(options.box_policy, options.pictures)
    )
