"""Link the shards in the folder `out` as Datumaro's `tf_detection_api` reads them."""

import json
from pathlib import Path

import datumaro

out, links = Path("out"), Path("for-datumaro")
links.mkdir()
for split in json.loads((out / "manifest.json").read_text())["splits"].values():
    for shard in split["shards"]:
        (links / f"{shard['file'].replace('.tfrecord', '')}.tfrecord").symlink_to((out / shard["file"]).resolve())
names = json.loads((out / "label_map.json").read_text())["name_by_index"]
items = (f'item {{\n  id: {number}\n  name: "{name}"\n}}\n' for number, name in enumerate(names, 1))
(links / "label_map.pbtxt").write_text("".join(items))
dataset = datumaro.Dataset.import_from(str(links), "tf_detection_api")
