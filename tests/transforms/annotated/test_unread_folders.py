import pytest

from recordmill.transforms.annotated.source import Source, SourceFolder, yield_nothing
from recordmill.transforms.annotated.unread_folders import unread_folders


@pytest.mark.parametrize(
    ("files", "read", "unread"),
    [
        (["labels/a.txt", "labels/train/b.txt"], ["imgs"], ["labels (2 label files)"]),
        (["labels/train/b.txt", "labels/test/c.txt"], ["labels/train"], []),
        (["train/labels/a.txt", "test/labels/a.txt"], ["train/labels"], ["test/labels (1 label file)"]),
        (["labels/a.txt"], [""], []),
        (["a/labels/1.txt", "b/labels/1.txt"], ["c"], ["a/labels (1 label file)", "b/labels (1 label file)"]),
        (["labels/a.jpg", "labels.txt", "other/a.txt"], ["imgs"], []),
        (["Annotations/a.txt"], ["imgs"], ["Annotations (1 label file)"]),
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
    assert len(texts) == bool(unread)
    assert all(f"{tmp_path}/{part}" in texts[0] for part in unread)
