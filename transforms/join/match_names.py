"""Names of images find files that are in other folders than they say: by the end of the path, or by its last part."""

from collections import defaultdict
from collections.abc import Iterable

from recordmill.schemas.errors import CollidingImagesError
from recordmill.schemas.names import name_parts

_SHOWN = 3


def base_name(name: str) -> str:
    r"""The last part, which the names of an image and of its file share in any case.

    >>> base_name("img/1.jpg"), base_name("C:\\img\\1.jpg")
    ('1.jpg', '1.jpg')
    """
    return name_parts(name)[-1]


def match_names(images: Iterable[str], files: Iterable[str], match: str) -> dict[str, str]:
    """The file of each image, all by name and of one `base_name`; an image without a file is not in it.

    With `suffix`, names that are equal belong together, then those that have the longest end, in whole parts, in
    common. With `name`, all belong together that share a last part.

    Raises:
        CollidingImagesError: two images, or two files, could belong to one of the others alike.

    >>> match_names(["train/1.jpg", "val/1.jpg"], ["img/val/1.jpg", "img/train/1.jpg"], "suffix")
    {'train/1.jpg': 'img/train/1.jpg', 'val/1.jpg': 'img/val/1.jpg'}
    """
    images, files = set(images), set(files)
    if match == "name":
        return _paired(images, files, match) if images and files else {}
    pairs = {name: name for name in images & files}
    images, files = images - pairs.keys(), files - pairs.keys()
    for length in range(max((len(name_parts(name)) for name in images), default=0), 0, -1):
        of_images, of_files = _by_end(images, length), _by_end(files, length)
        for end in sorted(of_images.keys() & of_files.keys()):
            found = _paired(of_images[end], of_files[end], match)
            pairs |= found
            images, files = images - found.keys(), files - set(found.values())
    return dict(sorted(pairs.items()))


def _by_end(names: Iterable[str], length: int) -> dict[tuple[str, ...], set[str]]:
    """Names by so many last parts; those that have fewer are left out."""
    by_end = defaultdict(set)
    for name in names:
        if len(parts := name_parts(name)) >= length:
            by_end[tuple(parts[-length:])].add(name)
    return by_end


def _paired(images: set[str], files: set[str], match: str) -> dict[str, str]:
    """The only image with the only file."""
    if len(images) == len(files) == 1:
        return dict(zip(images, files, strict=True))
    raise CollidingImagesError(
        f"--match {match}: the images {_some(images)} could be the files {_some(files)} alike; rename them, or give "
        "--images only the folder that is meant"
    )


def _some(names: set[str]) -> str:
    first = sorted(names)[:_SHOWN]
    return " and ".join(map(repr, first)) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
