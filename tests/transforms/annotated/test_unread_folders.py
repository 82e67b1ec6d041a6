import pytest

from recordmill.transforms.annotated.source import Source, SourceFolder, yield_nothing
from recordmill.transforms.annotated.unread_folders import unread_folders


@pytest.mark.parametrize(
    ("files", "read", "unread"),
    [
        (["labels/a.txt", "labels/train/b.txt"], ["imgs"], ["labels has 2 label files"]),
        (["labels/train/b.txt", "labels/test/c.txt"], ["labels/train"], []),
        (["train/labels/a.txt", "test/labels/a.txt"], ["train/labels"], ["test/labels has 1 label file"]),
        (["labels/a.txt"], [""], []),
        (["labels/a.jpg", "labels.txt", "other/a.txt"], ["imgs"], []),
        (["Annotations/a.txt"], ["imgs"], ["Annotations has 1 label file,"]),
    ],
)
def test_unread_folders(tmp_path, files, read, unread):
    for name in files:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    folders = tuple(SourceFolder(str(tmp_path / name)) for name in read)
    source = Source(str(tmp_path), "lines", folders, yield_nothing, lambda name: name.endswith(".txt"))
    texts = list(unread_folders(source))
    assert len(texts) == len(unread)
    assert all(f"{tmp_path}/{part}" in text for part, text in zip(unread, texts, strict=True))
