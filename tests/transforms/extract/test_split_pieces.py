from recordmill.schemas.layouts import LAYOUTS
from recordmill.transforms.extract.extract_pieces import SplitPieces, read_piece
from tests.transforms.extract.pieces import record, row, write_piece


def merged(folder, shards: list[str], layout: str = "detection") -> SplitPieces:
    pieces = tuple(read_piece(str(folder), shard) for shard in shards)
    return SplitPieces(str(folder), pieces, LAYOUTS[layout].with_parts(()))


def test_files_that_differ_spoil_every_spelling_of_their_name(tmp_path):
    names = ("a.jpg", "\u00e9.jpg", "e\u0301.jpg", "b.jpg")
    records = [record(number, number, name, name) for number, name in enumerate(names)]
    pieces = merged(tmp_path, [write_piece(tmp_path, "one", *records)])
    assert pieces.spoiled == {"images/val/e\u0301.jpg", "images/val/\u00e9.jpg"}
    assert [(fault.reason, fault.record) for fault in pieces.faults.listed] == [("duplicate_name", 2)]
    assert pieces.faults.listed[0].detail.endswith("record 1 of one has that name for another file: neither is kept")
    assert [row.json for row in pieces.image_rows()] == [
        b'{"id":0,"file_name":"a.jpg","width":40,"height":30}',
        b'{"id":3,"file_name":"b.jpg","width":40,"height":30}',
    ]
    assert (pieces.images, pieces.image_bytes) == (2, 200)


def test_record_left_out_does_not_take_id(tmp_path):
    """The first with the id 5 has a name that another has, too; of the others, the first is kept."""
    shard = write_piece(
        tmp_path,
        "one",
        record(0, 5, "a.jpg", "x"),
        record(1, 6, "a.jpg", "y"),
        record(2, 5, "b.jpg", "z"),
        record(3, 5, "c.jpg", "z"),
    )
    pieces = merged(tmp_path, [shard])
    assert [(fault.reason, fault.record) for fault in pieces.faults.listed] == [
        ("duplicate_name", 1),
        ("duplicate_image_id", 3),
    ]
    assert [row.json for row in pieces.image_rows()] == [b'{"id":5,"file_name":"b.jpg","width":40,"height":30}']


def test_faults_are_in_order_of_shards_and_records(tmp_path):
    """Not of names or ids."""
    shards = [
        write_piece(tmp_path, "a", *(record(n, 20 - n, f"{20 - n}.jpg", "x") for n in range(5))),
        write_piece(tmp_path, "b", *(record(n, 20 - n, f"{9 - n}.jpg", f"y{n}") for n in range(5))),
        write_piece(tmp_path, "c", *(record(n, 40 + n, f"{9 - n}.jpg", f"z{n}") for n in range(5))),
    ]
    found = [(fault.reason, fault.file, fault.record) for fault in merged(tmp_path, shards).faults.listed]
    assert found == [("duplicate_name", "c", n) for n in range(5)]
    same_ids = [write_piece(tmp_path, shard, *(record(n, 9 - n, f"{shard}{n}") for n in range(3))) for shard in "de"]
    found = [(fault.reason, fault.file, fault.record) for fault in merged(tmp_path, same_ids).faults.listed]
    assert found == [("duplicate_image_id", "e", n) for n in range(3)]


def test_ids_beyond_64_bits_are_named_apart(tmp_path):
    ids = (1 << 70, 5, 1 << 65, -(1 << 70))
    shard = write_piece(tmp_path, "one", *(record(n, id_, f"{n}.jpg") for n, id_ in enumerate(ids)))
    pieces = merged(tmp_path, [shard])
    assert not pieces.faults
    assert [row.id for row in pieces.image_rows()] == list(ids)


def test_same_image_in_two_records_of_layout_of_images_is_one_too_many(tmp_path):
    shard = write_piece(tmp_path, "one", *(record(n, 4, "a.jpg", instances=(row(n),)) for n in range(2)))
    assert [fault.reason for fault in merged(tmp_path, [shard]).faults.listed] == ["duplicate_image_id"]
    assert not merged(tmp_path, [shard], "keras").faults


def test_images_that_share_label_file(tmp_path):
    """Two images with the same stem are left out where their labels differ; where they are equal, both are kept."""
    records = [
        record(0, 1, "", files=[("images/val/a.jpg", "1"), ("labels/val/a.txt", "x")]),
        record(1, 2, "", files=[("images/val/a.png", "2"), ("labels/val/a.txt", "y")]),
        record(2, 3, "", files=[("images/val/b.jpg", "3"), ("labels/val/b.txt", "x")]),
        record(3, 4, "", files=[("images/val/b.png", "4"), ("labels/val/b.txt", "x")]),
        record(4, 4, "", files=[("images/val/c.jpg", "5"), ("labels/val/c.txt", "x")]),
        record(5, 9, "", files=[("images/val/c.jpg", "5"), ("labels/val/c.txt", "x")]),
    ]
    piece = read_piece(str(tmp_path), write_piece(tmp_path, "one", *records))
    pieces = SplitPieces(str(tmp_path), (piece,), LAYOUTS["detection"], has_label_files=True)
    assert pieces.spoiled == {"images/val/a.jpg", "images/val/a.png", "labels/val/a.txt"}
    assert [rows.image.id for rows in pieces.rows()] == [3, 4, 4]
    faults = [(fault.reason, fault.record) for fault in pieces.faults.listed]
    assert faults == [("duplicate_name", 1), ("duplicate_image_id", 5)]
