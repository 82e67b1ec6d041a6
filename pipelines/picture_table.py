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
from recordmill.transforms.blocks.group_tasks import GroupTasks
from recordmill.transforms.images.list_images import ListImages
from recordmill.transforms.join.match_files import MatchFiles
from recordmill.transforms.metadata.write_metadata import Findings
from recordmill.transforms.rejects.gather_rejects import GatherRejects
from recordmill.transforms.runtime.outputs import REJECTED
from recordmill.transforms.shards.encode_pictures import EncodePictures
from recordmill.transforms.table.count_rows import OF_FILE
from recordmill.transforms.table.read_picture_rows import ReadPictureRows


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
    listed = p | "ImageFolders" >> beam.Create(options.images) | "ListImages" >> ListImages(options.output)
    matched = (rows.images, listed) | "BothSides" >> beam.Flatten() | "MatchFiles" >> MatchFiles()
    return Gathered(
        matched.tasks | "GroupTasks" >> GroupTasks(job.splits, options.seed),
        chosen | "Labels" >> beam.Map(labels_of),
        chosen | "Table" >> beam.Map(table_of, pictures),
        Findings(
            input_rows(rows[OF_FILE]),
            (rows[REJECTED], matched.rejected) | "FoundRejected" >> GatherRejects(),
            matched.counted,
            matched.unlisted,
            matched.unmatched,
            warnings_of(chosen, job),
        ),
        columns.texts(rows[OF_FILE]),
    )


def contents(job: TableJob) -> Contents:
    """Records of rows with their pictures; the columns are not known before the job."""
    options = job.options
    pictures = picture_of_row(options.pictures.raw_size)
    return Contents(
        msgspec.structs.replace(TABLE, features=pictures), EncodePictures(options.box_policy, options.pictures)
    )
