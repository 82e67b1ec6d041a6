"""Recognition of COCO exports."""

import re
from collections.abc import Iterator

from recordmill.schemas.errors import ConfigError, RecordmillError
from recordmill.schemas.inputs.file_kinds import describe_content
from recordmill.transforms.coco.coco_options import CocoOptions
from recordmill.transforms.coco.find_exports import find_exports, is_export_name
from recordmill.transforms.rows.data_contents import CLASS_FOLDERS, DataContents, Interpretation, head_of
from recordmill.transforms.storage.resolve import GZIP

_COCO = re.compile(rb'"(images|annotations)"\s*:')


def ways(contents: DataContents, options: type[CocoOptions]) -> Iterator[Interpretation]:
    """Yield the way to read an export as COCO; or the error of one whose files contradict each other, or name images
    that are in no usual folder."""
    data = contents.data
    if contents.folder != data.rstrip("/"):
        return
    try:
        _, given = find_exports(options(data=data, output="out"))
    except (RecordmillError, OSError) as error:
        named = next(filter(is_export_name, contents.names), "")
        name = named or next((name for name, head in contents.heads.items() if _is_coco(head)), "")
        if name:
            text = str(error).partition("; recordmill auto ")[0]
            fault = ConfigError(f"{text} (of recordmill coco --data {data})")
            yield Interpretation(f"{name} is COCO's JSON", (("--data", data),), 0 if named else CLASS_FOLDERS, fault)
        return
    try:
        head = head_of(given.parts[0].sources[0].path)
    except (RecordmillError, OSError):
        return
    if given.notes and (head.startswith(GZIP) or _is_coco(head)):
        yield Interpretation("; ".join(given.notes), (("--data", data),))


def _is_coco(head: bytes) -> bool:
    return bool(_COCO.search(head) and not describe_content(head))
