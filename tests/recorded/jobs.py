# ruff: noqa: E501
"""The recorded jobs: one line of arguments each, relative to the folder of the inputs. `{out}` is the job's own folder."""

_SAMPLE = "--images sample/images --instances sample/annotations/instances.json --max-rejects 0.2"
_KEYPOINTS = "--keypoints sample/annotations/person_keypoints.json"
_CAPTIONS = "--captions sample/annotations/captions.json"
_PANOPTIC = "--panoptic sample/annotations/panoptic.json --panoptic-masks sample/panoptic"
_ODD = "--images odd/images --instances odd/instances.json --bbox-format xywh --max-rejects 1"
_SHAPES = "--images shapes/images --max-rejects 1 --num-shards 2"
_CLASSES = "--images classes/images --max-rejects 1"
_MINI = "--images mini/val2017 --instances mini/annotations/instances_val2017.json"

CLEAN = {
    "coco": f"coco {_SAMPLE} --output {{out}}",
    "coco-shards": f"coco {_SAMPLE} --output {{out}} --num-shards 5 --seed 3 --name other",
    "coco-gzip": f"coco {_SAMPLE} --output {{out}} --num-shards 2 --gzip",
    "coco-per-shard": f"coco {_SAMPLE} --output {{out}} --examples-per-shard 17 --check header",
    "coco-shard-size": f"coco {_SAMPLE} --output {{out}} --shard-size 100kB --check none",
    "coco-splits": f"coco {_SAMPLE} --output {{out}} --split train=0.7,val=0.2,test=0.1 --split-seed 4 --num-shards 2",
    "coco-more-shards": f"coco {_SAMPLE} --output {{out}} --num-shards 80",
    "coco-masks-png": f"coco {_SAMPLE} {_KEYPOINTS} --output {{out}} --masks png --num-shards 2",
    "coco-masks-both": f"coco {_SAMPLE} {_CAPTIONS} {_PANOPTIC} --output {{out}} --masks both --num-shards 2",
    "coco-stuff": f"coco {_SAMPLE} --stuff sample/annotations/stuff.json --output {{out}} --masks rle",
    "coco-captions": f"coco --images sample/images {_CAPTIONS} --output {{out}} --caption-text tfidf --ngrams 1,2 --max-rejects 1",
    "coco-tokens": f"coco --images sample/images {_CAPTIONS} --output {{out}} --caption-text tokens --max-rejects 1",
    "coco-image-info": "coco --images sample/images --image-info sample/annotations/image_info.json --output {out} --max-rejects 1",
    "coco-keras": f"coco {_SAMPLE} --output {{out}} --layout keras",
    "coco-keras-gzip": f"coco {_SAMPLE} --output {{out}} --layout keras --examples-per-shard 50 --gzip",
    "coco-tfds": f"coco {_SAMPLE} --output {{out}} --layout tfds --num-shards 3",
    "coco-tfds-panoptic": f"coco {_PANOPTIC} --images sample/images --output {{out}} --layout tfds --max-rejects 1",
    "coco-zip-gz": "coco --images sample/images.zip --instances sample/annotations/instances.json.gz --output {out} --max-rejects 1",
    "coco-jpeg": f"coco {_SAMPLE} --output {{out}} --format jpeg --max-side 100 --jpeg-quality 80",
    "coco-filters": f"coco {_SAMPLE} --output {{out}} --categories circle,square --no-crowd --min-area 900 --boxes drop",
    "coco-no-list": f"coco {_SAMPLE} --output {{out}} --no-list --num-shards 2",
    "folder": "folder --images sample/classes --output {out}",
    "folder-stratify": "folder --images sample/classes --output {out} --split train=0.6,val=0.4 --stratify --num-shards 2",
    "folder-gzip": "folder --images sample/classes --output {out} --gzip --classes square,circle",
    "table": "table --rows tables/rows.csv --output {out} --num-shards 3 --key key --max-rejects 1",
    "table-label": "table --rows sample/objects.csv --output {out} --label shape --split train=0.8,val=0.2 --stratify --gzip",
    "table-jsonl": "table --rows tables/rows.jsonl --output {out} --max-rejects 1",
    "table-parquet": "table --rows tables/rows.parquet --output {out} --label class --num-shards 2",
    "table-pictures": "table --rows sample/pictures.csv --images sample/classes --image-column image --label label"
    " --text-column description --text tfidf --output {out}",
    "table-raw": "table --rows sample/pictures.csv --images sample/classes --image-column image --label label --raw-size 8x6"
    " --text-column description --text counts --output {out}",
    "embed": "embed --images sample/classes --model model.keras --layer same --preprocess none --output {out}",
    "extract": "extract out/coco-masks-both {out}",
    "extract-folder": "extract out/folder-stratify {out} --split val",
    "index": "index {out}",
}  # fmt: skip
"""Every verb, kind, layout, container, and way to split, on the sample data set."""

ODD = {
    "odd": f"coco {_ODD} --output {{out}} --num-shards 4",
    "odd-joined": f"coco {_ODD} --keypoints odd/second.json --captions odd/captions.json --masks rle --output {{out}} --num-shards 3",
    "odd-keep": f"coco {_ODD} --boxes keep --output {{out}} --num-shards 3 --categories dog,big,été",
    "odd-keras": f"coco {_ODD} --layout keras --output {{out}} --boxes drop",
    "odd-tfds": f"coco {_ODD} --layout tfds --output {{out}} --split train=0.5,val=0.5",
    "odd-groups": f"coco {_ODD} --output {{out}} --groups odd/groups.csv --split train=0.6,val=0.4 --num-shards 2",
    "odd-match": f"coco {_ODD} --output {{out}} --match name --check header --format png",
    "odd-no-list": f"coco {_ODD} --output {{out}} --no-list --check header --duplicates report",
    "odd-sample": "coco --images odd-sample/images --instances odd-sample/annotations/instances.json --max-rejects 1 --output {out}",
    "odd-sample-png": "coco --images odd-sample/images --instances odd-sample/annotations/instances.json --max-rejects 1"
    " --format png --max-side 64 --output {out}",
    "shapes": f"coco {_SHAPES} --instances shapes/instances.json --masks both --output {{out}}",
    "shapes-xyxy": f"coco {_SHAPES} --instances shapes/xyxy.json --bbox-format xyxy --output {{out}}",
    "shapes-rel": f"coco {_SHAPES} --instances shapes/rel-xywh.json --bbox-format rel-xywh --layout keras --output {{out}}",
    "lvis": "coco --images lvis/images --instances lvis/lvis.json --masks rle --output {out} --match suffix",
    "rejects": "coco --images rejects/images --instances rejects/instances.json --max-rejects 1 --output {out}",
    "classes": f"folder {_CLASSES} --output {{out}} --num-shards 3",
    "classes-png": f"folder {_CLASSES} --output {{out}} --format png --max-side 30 --split train=0.5,val=0.3,test=0.2",
    "classes-groups": f"folder {_CLASSES} --output {{out}} --group-from '^[^/]+/(\\S+) ' --split train=0.7,val=0.3"
    " --duplicates leakage",
    "classes-labels": f"folder {_CLASSES} --labels classes/labels.csv --output {{out}} --format jpeg --split-column split",
    "table-odd": "table --rows tables/rows.csv --output {out} --split train=0.6,val=0.4 --group-column text"
    " --label class --max-rejects 1 --default whole=-1",
    "extract-odd": "extract out/odd-joined {out}",
    "mini": f"coco {_MINI} --output {{out}} --num-shards 2 --masks both",
}  # fmt: skip
"""Jobs on unusual and real data. The folder `mini` is a link into ../shared/data."""
