"""Targets of `Split.torch` for torchvision, and each record once with any number of workers and ranks."""

import pickle
import threading

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import recordmill
from recordmill._split_records import RecordContents
from recordmill._torch_dataset import torch_example
from recordmill.schemas.errors import ConfigError
from recordmill.schemas.features import Feature, FeatureKind, FeatureTable, RecordOf
from recordmill.schemas.field_features import RAGGED, FieldColumn, add_fields
from recordmill.schemas.layouts import LAYOUTS, row_image_features
from tests.recordmill.splits import CONTENTS, LABELS, draw, write_split

RECORDS = 11


@pytest.fixture
def split(tmp_path):
    contents = CONTENTS["detection"]
    return write_split(tmp_path, contents, [draw(contents, number) for number in range(RECORDS)])


def test_record_is_pair_for_torchvision(split):
    for number in range(RECORDS):
        example, (image, target) = split[number], split.torch()[number]
        height, width, _ = example["image"].shape
        assert image.dtype == torch.uint8
        assert np.array_equal(image.numpy().transpose(1, 2, 0), example["image"])
        ymin, xmin, ymax, xmax = example["boxes"].T
        edges = np.stack([xmin * width, ymin * height, xmax * width, ymax * height], -1)
        np.testing.assert_allclose(target["boxes"].numpy(), edges, rtol=1e-6)
        assert target["boxes"].shape == (len(example["labels"]), 4)
        assert target["labels"].tolist() == [label + 1 for label in example["labels"]]
        assert target["iscrowd"].tolist() == example["is_crowd"].tolist()
        assert np.array_equal(target["masks"].numpy(), example["masks"])
        np.testing.assert_allclose(target["keypoints"][..., 0].numpy(), example["keypoints"][..., 0] * width, rtol=1e-6)
        np.testing.assert_allclose(
            target["keypoints"][..., 1].numpy(), example["keypoints"][..., 1] * height, rtol=1e-6
        )
        assert np.array_equal(target["keypoints"][..., 2].numpy(), example["keypoints"][..., 2])
        assert target["image_id"] == number
        assert target["file_name"] == example["file_name"]
        assert {target[name].dtype for name in ("boxes", "keypoints")} == {torch.float32}
        assert {target[name].dtype for name in ("labels", "iscrowd", "image_id")} == {torch.int64}


@pytest.mark.parametrize(
    ("name", "first"), [("classification", "image"), ("float32", "feature"), ("float16", "feature")]
)
def test_of_one_class_target_is_its_index(name, first):
    example = {first: np.ones((2, 3, 3), np.float16 if name == "float16" else np.float32), "label": np.int64(5)}
    picture, label = torch_example(example, "label")
    assert picture.shape == ((3, 2, 3) if first == "image" else (2, 3, 3))
    assert (label.dtype, label.item()) == (torch.int64, 5)


@pytest.mark.parametrize("name", ["classification", "float16", "rows", "pixels", "keras", "tfds"])
def test_each_layout_is_read(tmp_path, name):
    contents = CONTENTS[name]
    split = write_split(tmp_path, contents, [draw(contents, number) for number in range(3)])
    given, example = split.torch()[2], split[2]
    if name == "rows":
        assert given.keys() == example.keys()
        assert np.array_equal(given["numbers"].numpy(), example["numbers"])
        assert given["note"] == example["note"].tolist()
    else:
        first = example["image" if "image" in example else "feature"]
        assert given[0].numpy().size == first.size


@pytest.mark.parametrize("pictures", [True, False])
def test_columns_keep_any_name(tmp_path, pictures):
    names = ("label", "labels", "boxes", "feature", "keypoints", "is_crowd", "box_xywh_px")
    columns = [Feature(name, f"row.{name}", FeatureKind.INT64, (), "", name) for name in names]
    columns += row_image_features(None) if pictures else []
    table = FeatureTable("table", tuple(sorted(columns, key=lambda each: each.name)), RecordOf.ROW)
    contents = RecordContents(table, LABELS)
    split = write_split(tmp_path, contents, [draw(contents, number) for number in range(3)])
    given, row = split.torch()[2], split[2]
    target = given
    if pictures:
        image, target = given
        assert np.array_equal(image.numpy().transpose(1, 2, 0), row["image"])
        assert "image" not in target
    assert {name: target[name].tolist() for name in names} == {name: row[name] for name in names}
    assert split.torch(transform=lambda *made: len(made))[2] == (2 if pictures else 1)


def test_record_of_one_object_is_picture_of_one(tmp_path):
    contents = CONTENTS["keras"]
    split = write_split(tmp_path, contents, [draw(contents, number) for number in range(3)])
    (_, target), example = split.torch()[1], split[1]
    x, y, width, height = example["box_xywh_px"]
    np.testing.assert_allclose(target["boxes"].numpy(), [[x, y, x + width, y + height]])
    assert target["labels"].tolist() == [example["labels"] + 1]
    assert "box_xywh_px" not in target


def test_impossible_arguments_are_named(tmp_path, split):
    for more in ({"seed": 0}, {"part": (0, 2)}, {"even": True}):
        with pytest.raises(ConfigError, match="seed, part and even need iterable=True"):
            split.torch(**more)
    for more in ({"part": ()}, {"part": 3}, {"part": ("0", "2")}, {"seed": "x"}, {"even": "no"}):
        with pytest.raises(ConfigError, match=r"^Split.torch: (part|seed|even)=.* must be .*: \1="):
            split.torch(iterable=True, **more)
    with pytest.raises(ConfigError, match="epoch -1: epochs are counted from 0"):
        split.torch(iterable=True).set_epoch(-1)
    with pytest.raises(TypeError, match="'slice' object cannot be interpreted as an integer"):
        split.torch()[0:2]
    for part in ((2, 2), (-1, 2), (0, 0)):
        with pytest.raises(ConfigError, match=r"part must be \(rank, ranks\)"):
            split.torch(iterable=True, part=part)
    with pytest.raises(ConfigError, match="keys must have image"):
        split.torch(keys=["boxes"])
    compressed = write_split(tmp_path, CONTENTS["rows"], [draw(CONTENTS["rows"], 0)], compressed=True)
    for iterable in (False, True):
        with pytest.raises(ConfigError, match="the shards are compressed by GZIP"):
            compressed.torch(iterable=iterable)


def ids(batch) -> list[int]:
    return [int(target["image_id"]) for _, target in batch]


@pytest.mark.parametrize("workers", [0, 2])
def test_loader_reads_each_record_once(split, workers):
    loader = DataLoader(split.torch(), 3, shuffle=True, num_workers=workers, collate_fn=ids)
    assert sorted(id_ for batch in loader for id_ in batch) == list(range(RECORDS))


def test_repetitions_are_divided_among_workers_and_ranks(split):
    repeated = split.repeated(1.0, seed=1)
    expected = [int(record["image_id"]) for record in repeated]
    assert len(expected) > RECORDS
    loader = DataLoader(repeated.torch(), 3, shuffle=True, num_workers=2, collate_fn=ids)
    assert sorted(id_ for batch in loader for id_ in batch) == expected
    ranks = (repeated.torch(iterable=True, seed=1, part=(rank, 2)) for rank in range(2))
    read = [id_ for rank in ranks for batch in DataLoader(rank, 3, num_workers=2, collate_fn=ids) for id_ in batch]
    assert (sorted(read), read == expected) == (expected, False)


@pytest.mark.parametrize("iterable", [False, True])
def test_workers_may_be_spawned(split, iterable):
    records = split.torch(iterable=iterable)
    assert ids([next(iter(records))]) == [0]  # the index is there already, and not for the workers
    loader = DataLoader(records, 3, num_workers=2, collate_fn=ids, multiprocessing_context="spawn")
    assert sorted(id_ for batch in loader for id_ in batch) == list(range(RECORDS))


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_collate_keeps_sizes_in_workers(split, context):
    options = {"collate_fn": recordmill.collate, "num_workers": 1, "multiprocessing_context": context}
    records = split.torch(keys=["image", "image_id"])
    images, targets = next(iter(DataLoader(records, 3, **options)))
    assert [image.shape for image in images] == [records[number][0].shape for number in range(3)]
    assert [int(target["image_id"]) for target in targets] == [0, 1, 2]


def test_collate_of_rows_without_images():
    assert recordmill.collate([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]) == {"a": (1, 2), "b": ("x", "y")}


def with_storages(batch):
    """Targets as a worker has them, and the places of their storages."""
    return [
        (target, {each.storage().data_ptr() for each in target.values() if torch.is_tensor(each)})
        for _, target in batch
    ]


def test_worker_sends_target_as_one_storage(split):
    loader = DataLoader(split.torch(), 3, num_workers=1, collate_fn=with_storages)
    found = [pair for batch in loader for pair in batch]
    assert len(found) == RECORDS
    for number, (target, storages) in enumerate(found):
        (_, alone) = split.torch()[number]
        assert target.keys() == alone.keys()
        for name, value in alone.items():
            assert value.equal(target[name]) if torch.is_tensor(value) else value == target[name]
            assert not torch.is_tensor(value) or value.dtype == target[name].dtype
        assert len(storages) == 1


@pytest.mark.parametrize("iterable", [False, True])
def test_threads_read_same_records_in_same_order(split, iterable):
    for seed in (None, 3) if iterable else (None,):
        arguments = {"iterable": True, "seed": seed} if iterable else {}
        threads, one = (
            list(DataLoader(split.torch(**arguments, threads=number), batch_size=4, collate_fn=list))
            for number in (3, 1)
        )
        assert [ids(batch) for batch in threads] == [ids(batch) for batch in one]
        assert all(
            map(torch.equal, *([image for batch in batches for image, _ in batch] for batches in (threads, one)))
        )
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("decode")]


@pytest.mark.parametrize("name", ["detection", "keras"])
def test_boxes_are_in_pixels_of_resized_image(tmp_path, name):
    split = write_split(tmp_path, CONTENTS[name], [draw(CONTENTS[name], number) for number in range(3)])
    for (image, target), (resized, resized_target) in zip(split.torch(), split.torch(resize=(40, 50)), strict=True):
        assert resized.shape == (3, 40, 50)
        height, width = image.shape[1:]
        scaled = target["boxes"] * torch.tensor([50 / width, 40 / height] * 2)
        torch.testing.assert_close(resized_target["boxes"], scaled)


def test_several_at_once_are_one_by_one(split):
    records = split.torch()
    assert ids(records.__getitems__([4, 1, 4])) == ids([records[4], records[1], records[4]]) == [4, 1, 4]


@pytest.mark.parametrize(("ranks", "workers"), [(1, 0), (1, 2), (3, 0), (2, 2)])
def test_workers_of_all_ranks_read_each_record_once_epoch(split, ranks, workers):
    orders = []
    for epoch in range(2):
        read = []
        for rank in range(ranks):
            part = split.torch(iterable=True, seed=3, part=(rank, ranks))
            part.set_epoch(epoch)
            loader = DataLoader(part, 2, num_workers=workers, collate_fn=ids)
            read += [id_ for batch in loader for id_ in batch]
        assert sorted(read) == list(range(RECORDS))
        orders.append(read)
    assert orders[0] != orders[1]


@pytest.mark.parametrize(("ranks", "workers"), [(3, 0), (2, 2)])
def test_even_workers_have_as_many_batches(split, ranks, workers):
    batches, read = [], []
    for rank in range(ranks):
        part = split.torch(iterable=True, seed=3, part=(rank, ranks), even=True, keys=["image", "image_id"])
        found = list(DataLoader(part, 2, num_workers=workers, collate_fn=ids))
        batches.append([len(batch) for batch in found])
        read += [id_ for batch in found for id_ in batch]
    assert all(each == batches[0] for each in batches)
    assert len(set(read)) == len(read) == RECORDS - RECORDS % (ranks * max(1, workers))


def test_without_seed_order_is_that_of_data_set(split):
    assert ids(split.torch(iterable=True)) == list(range(RECORDS))


def test_ranks_are_those_of_torchrun(split, monkeypatch):
    records = split.torch(iterable=True)
    monkeypatch.setenv("RANK", "1")
    assert ids(records) == list(range(RECORDS))
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert ids(records) == [1, 4, 7, 10]
    assert ids(split.torch(iterable=True, part=(0, 2))) == [0, 2, 4, 6, 8, 10]
    for rank in ("3", "one"):
        monkeypatch.setenv("RANK", rank)
        with pytest.raises(ConfigError, match="RANK '"):
            ids(records)


def test_ranks_are_torch_distributed(split, tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    records = split.torch(iterable=True)
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    try:
        assert ids(records) == list(range(RECORDS))
        spawned = pickle.dumps(records)
    finally:
        torch.distributed.destroy_process_group()
    assert ids(pickle.loads(spawned)) == list(range(RECORDS))


def test_a_transform_is_given_both(split):
    records = split.torch(transform=lambda image, target: (image.shape, int(target["image_id"])))
    assert records[4] == (split.torch()[4][0].shape, 4)
    assert [
        id_ for _, id_ in split.torch(iterable=True, transform=lambda image, target: (0, int(target["image_id"])))
    ] == [*range(RECORDS)]


def test_fields(tmp_path):
    """Also sent by a worker of a DataLoader. An image's field `label` is not a class."""
    columns = [
        FieldColumn("object", "score", FeatureKind.FLOAT),
        FieldColumn("object", "pair", FeatureKind.INT64, 2),
        FieldColumn("object", "list", FeatureKind.FLOAT, RAGGED),
        FieldColumn("object", "words", FeatureKind.BYTES, RAGGED),
        FieldColumn("object", "label", FeatureKind.BYTES),
    ]
    layout = LAYOUTS["detection"].with_parts(())
    contents = RecordContents(add_fields(layout, columns).table, LABELS)
    drawn = draw(RecordContents(layout, LABELS), 2)
    own = {
        "score": [0.5, float("nan")],
        "pair": [1, 2, 3, 4],
        "list/ragged_flat_values": [0.5, 0.25, 1],
        "list/ragged_row_lengths_0": [1, 2],
        "words/ragged_flat_values": [b"a", b"b"],
        "words/ragged_row_lengths_0": [2, 0],
        "label": [b"x", b""],
    }
    drawn.values.update({f"objects.field:{name}": values for name, values in own.items()})
    records = write_split(tmp_path, contents, [drawn, drawn]).torch()
    for _, target in (records[0], *DataLoader(records, batch_size=None, num_workers=1)):
        assert target["score"].isnan().tolist() == [False, True]
        assert target["pair"].tolist() == [[1, 2], [3, 4]]
        assert [(part.dtype, part.tolist()) for part in target["list"]] == [
            (torch.float32, [0.5]),
            (torch.float32, [0.25, 1]),
        ]
        assert target["words"] == [[b"a", b"b"], []]
        assert target["label"] == [b"x", b""]
        assert "boxes" in target
