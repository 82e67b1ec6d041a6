"""`--container parquet` in LitData, whose reader takes a folder of one split, and leaves an index.json in it."""

import io

import litdata
import numpy as np
from litdata.streaming.item_loader import ParquetLoader
from PIL import Image


def test_rows(truth, recordmill, tmp_path):
    folder = str(tmp_path / "out")
    flags = "--container", "parquet", "--num-shards", 2, "--output", folder
    assert recordmill("convert", *truth.flags, *flags).code == 0
    litdata.index_parquet_dataset(folder)
    assert (tmp_path / "out" / "index.json").exists()
    rows = list(litdata.StreamingDataset(folder, item_loader=ParquetLoader()))
    assert {row["image_id"] for row in rows} == truth.image_ids
    for row in rows:
        assert row["objects"]["id"] == truth.values(row["image_id"], "id")
    with Image.open(truth.path(rows[0]["image_id"])) as image:
        pixels = np.asarray(Image.open(io.BytesIO(rows[0]["image"]["bytes"])).convert("RGB"))
        assert np.array_equal(pixels, np.asarray(image.convert("RGB")))
    assert recordmill("verify", folder, "--check", "hashes").code == 0
