"""Recognition of COCO exports."""

import re
from collections.abc import Iterator

from recordmill.schemas.errors import ConfigError, RecordmillError
from recordmill.schemas.inputs.file_kinds import describe_content
from recordmill.transforms.coco.coco_options import CocoOptions
from recordmill.transforms.coco.find_exports import find_exports, find_images_of_file, is_export_name
from recordmill.transforms.rows.data_contents import CLASS_FOLDERS, DataContents, Interpretation, read_beginning
from recordmill.transforms.storage.resolve import GZIP

_COCO = re.compile(rb'"(images|annotations)"\s*:')


def ways(contents: DataContents, options: type[CocoOptions]) -> Iterator[Interpretation]:
    """Yield the way to read an export as COCO; or the error of one whose files contradict each other, or name images
    that are in no usual folder."""
    data = contents.data
    if contents.folder != data.rstrip("/"):
        yield from _annotation_file(contents)
        return
    try:
        given_images = {name: contents.given[name] for name in ("images", "match") if name in contents.given}
        _, given = find_exports(options(data=data, output="out", **given_images))
    except (RecordmillError, OSError) as error:
        named = next(filter(is_export_name, contents.names), "")
        name = named or next((name for name, head in contents.heads.items() if _is_coco(head)), "")
        if name:
            fault = ConfigError(str(error))
            yield Interpretation(f"{name} is COCO's JSON", {"data": [data]}, 0 if named else CLASS_FOLDERS, fault)
        return
    try:
        path = given.parts[0].sources[0].path
        head = read_beginning(path)
    except (RecordmillError, OSError):
        return
    if given.notes and (head.startswith(GZIP) or _is_coco(head)):
        yield Interpretation(f"{path.removeprefix(data).lstrip('/')} is COCO's JSON", {"data": [data]})


def _is_coco(head: bytes) -> bool:
    return bool(_COCO.search(head) and not describe_content(head))


def _annotation_file(contents: DataContents) -> Iterator[Interpretation]:
    """Yield the way to read one annotation file. Its images are those of --images, or where exports have them."""
    (name,) = contents.names
    if not _is_coco(contents.heads.get(name, b"")):
        return
    kind, images, masks, fault = find_images_of_file(
        contents.data, contents.heads[name], contents.given.get("match", "path")
    )
    given = contents.given.get("images") or images
    values = {"data": [given] if isinstance(given, str) else list(given), kind.value: [contents.data]}
    values |= {"panoptic_masks": [masks]} if masks else {}
    yield Interpretation(f"{name} is COCO's JSON", values, 0, None if given else fault)
