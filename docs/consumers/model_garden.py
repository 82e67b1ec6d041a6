"""Fill the Model Garden template of a data set: python docs/consumers/model_garden.py retinanet OUT > config.yaml"""

import argparse
import json
import re
from pathlib import Path

import jinja2

import recordmill
from recordmill.transforms.dataset.dataset_folder import read_statistics

PARTS = {"retinanet": set(), "maskrcnn": {"mask_png"}, "segmentation": {"semantic"}, "classification": set()}
parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("model", choices=PARTS)
parser.add_argument("folder", help="data set with two splits, local or gs://, without * ? [ ] and commas in its path")
parser.add_argument("--splits", nargs=2, default=("train", "val"), metavar=("TRAIN", "VALIDATION"))
parser.add_argument("--batch-size", type=int, default=8, help="images per step, over all devices")
args = parser.parse_args()
data = recordmill.open(args.folder)
manifest, statistics = data.manifest, read_statistics(data.path, args.splits).values()
train, validation = (manifest.splits[data[name].name] for name in args.splits)
layout = "classification" if args.model == "classification" else "detection"
is_compressed = bool(train.compression or validation.compression)
if manifest.layout != layout or not PARTS[args.model] <= set(manifest.parts) or is_compressed:
    parts = "".join(f" with {part}" for part in PARTS[args.model])
    parser.error(f"{args.model} needs an uncompressed data set of the layout {layout}{parts}")
if train.examples < args.batch_size:
    parser.error(f"{args.splits[0]} has {train.examples} records, fewer than one batch")
numbers_of_objects = [split.histograms.get("objects_an_image") for split in statistics]
semantic_classes = max(manifest.labels.semantic_by_id().values(), default=0) + 1
values = {"batch_size": args.batch_size, "rate": lambda of_one_image: f"{of_one_image * args.batch_size:.8f}"}
values["num_classes"] = semantic_classes if args.model == "segmentation" else manifest.num_classes
values["max_objects"] = max([100, *(int(numbers.largest) for numbers in numbers_of_objects if numbers)])
values["is_jpeg"] = all(split.formats.keys() <= {"jpeg"} for split in statistics)
for name, split in (("train", train), ("validation", validation)):
    files = [f"{data.path.rstrip('/')}/{shard.file}" for shard in split.shards]
    patterns = {re.sub(r"-\d+-of-", "-*-of-", file) for file in files}
    # File names of a data set that has grown have several numbers of shards, and old files may lie next to new ones.
    path = ",".join(patterns if len(patterns) == 1 else files)
    values[name] = {"examples": split.examples, "path": json.dumps(path, ensure_ascii=False)}
text = Path(__file__).with_name(f"model-garden-{args.model}.yaml").read_text()
print(jinja2.Template(text, trim_blocks=True, undefined=jinja2.StrictUndefined).render(values))
