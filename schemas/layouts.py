"""The layouts a data set can be written in, each a feature table.

A feature's source says what its value is; `transforms.encode_examples` computes these:

    image.encoded  .file_name  .format  .height  .width  .sha256  .id        one value an image
    objects.area  .category_id  .category_name  .class_index  .id  .is_crowd  .xmin .xmax .ymin .ymax
                                                                             one value an annotation

`detection` is read unchanged by Model Garden (`official/vision/dataloaders/tf_example_decoder.py`) and by the Object
Detection API (`object_detection/data_decoders/tf_example_decoder.py`); ours on top are `image/object/id` and
`image/object/class/index`, which those readers ignore.
"""

from schemas.features import Feature, FeatureTable, Kind

_OBJECTS = ("N",)

DETECTION = FeatureTable(
    "detection",
    (
        Feature("image/encoded", "image.encoded", Kind.BYTES, (), "JPEG or PNG", "the image file"),
        Feature("image/filename", "image.file_name", Kind.BYTES, (), "utf-8", "COCO file_name"),
        Feature(
            "image/format",
            "image.format",
            Kind.BYTES,
            (),
            "jpeg or png",
            "what the bytes are, whatever the file is called",
        ),
        Feature("image/height", "image.height", Kind.INT64, (), "px", "height of the encoded pixels"),
        Feature("image/key/sha256", "image.sha256", Kind.BYTES, (), "hex", "SHA-256 of image/encoded"),
        Feature("image/object/area", "objects.area", Kind.FLOAT, _OBJECTS, "px²", "area, from the JSON"),
        Feature(
            "image/object/bbox/xmax", "objects.xmax", Kind.FLOAT, _OBJECTS, "fraction of width", "right edge, 0..1"
        ),
        Feature("image/object/bbox/xmin", "objects.xmin", Kind.FLOAT, _OBJECTS, "fraction of width", "left edge, 0..1"),
        Feature(
            "image/object/bbox/ymax", "objects.ymax", Kind.FLOAT, _OBJECTS, "fraction of height", "bottom edge, 0..1"
        ),
        Feature("image/object/bbox/ymin", "objects.ymin", Kind.FLOAT, _OBJECTS, "fraction of height", "top edge, 0..1"),
        Feature(
            "image/object/class/index",
            "objects.class_index",
            Kind.INT64,
            _OBJECTS,
            "0..classes-1",
            "contiguous class index",
        ),
        Feature(
            "image/object/class/label",
            "objects.category_id",
            Kind.INT64,
            _OBJECTS,
            "COCO id",
            "category id as in the JSON",
        ),
        Feature("image/object/class/text", "objects.category_name", Kind.BYTES, _OBJECTS, "utf-8", "category name"),
        Feature("image/object/id", "objects.id", Kind.INT64, _OBJECTS, "COCO id", "annotation id"),
        Feature(
            "image/object/is_crowd", "objects.is_crowd", Kind.INT64, _OBJECTS, "0 or 1", "1 where the box holds a crowd"
        ),
        Feature("image/source_id", "image.id", Kind.BYTES, (), "decimal", "COCO image id"),
        Feature("image/width", "image.width", Kind.INT64, (), "px", "width of the encoded pixels"),
    ),
)

LAYOUTS = {table.layout: table for table in (DETECTION,)}
