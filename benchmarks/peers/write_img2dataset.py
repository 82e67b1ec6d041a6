"""Conversion by img2dataset: addresses of local files become .tar files of webdataset; images are not encoded again."""

import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from img2dataset import download
from rows import rows

KEPT = ["image_id", "bbox", "label", "area", "is_crowd", "objects_id"]


def main(data: str, output: str, shards: str) -> None:
    table = []
    for row in rows(data):
        boxes, labels, areas, crowds, ids = row.objects
        flat = [value for box in boxes for value in box]
        kept = dict(zip(KEPT, (row.id, flat, labels, areas, crowds, ids), strict=True))
        table.append({"url": Path(row.path).resolve().as_uri(), "caption": row.file_name, **kept})
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(pa.Table.from_pylist(table), f"{folder}/urls.parquet")
        download(
            url_list=f"{folder}/urls.parquet",
            input_format="parquet",
            url_col="url",
            caption_col="caption",
            save_additional_columns=KEPT,
            output_folder=output,
            output_format="webdataset",
            resize_mode="no",
            disable_all_reencoding=True,
            processes_count=1,
            thread_count=8,
            number_sample_per_shard=-(-len(table) // int(shards)),
            compute_hash=None,
            extract_exif=False,
            disallowed_header_directives=[],
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
