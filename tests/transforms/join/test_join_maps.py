import numpy as np
import pytest

from recordmill.schemas.block import Block, ragged_texts
from recordmill.schemas.errors import CollidingImagesError
from recordmill.schemas.features import Part
from recordmill.schemas.inputs.annotations import MapFile
from recordmill.schemas.inputs.files import File
from recordmill.schemas.inputs.maps import MapFolder, NameEnds, depth_folders
from recordmill.transforms.blocks.image_tasks import labels_of
from recordmill.transforms.blocks.pack_block import pack_block, unpack_block
from recordmill.transforms.join.join_maps import JoinMaps, choose_file
from tests.transforms.dataset.kinds import applied

DEPTH = MapFolder(Part.DEPTH, "depth")
WITH_IMAGES = MapFolder(Part.DEPTH, "data", has_others=True)
CITYSCAPES = MapFolder(Part.SEMANTIC, "gtFine", "", NameEnds("", "_leftImg8bit"), NameEnds("", "_labelIds"))
CAMVID = MapFolder(Part.SEMANTIC, "labels", "train/", map_ends=NameEnds("", "_L"))


@pytest.mark.parametrize(
    ("folder", "image", "file"),
    [
        (CAMVID, "train/0001TP_1.png", "0001TP_1_L.png"),
        (CITYSCAPES, "a/1_leftImg8bit.png", "a/1_labelIds.png"),
        (MapFolder(Part.SEMANTIC, "masks", "", NameEnds("img_"), NameEnds("mask_")), "x/img_1.jpg", "x/mask_1.png"),
        (DEPTH, "train/images/1.jpg", "train/1.png"),
        (DEPTH, "1.jpg", "depth/1_depth.png"),
        (DEPTH, "color/1.jpg", "1.png"),
        (DEPTH, "frame-0.color.png", "frame-0.depth.png"),
        (DEPTH, "./rgb_1.v2.png", "depth_1.v2.png"),
        (WITH_IMAGES, "train/images/1.png", "train/depth/1.png"),
        (WITH_IMAGES, "train/1.png", "train/1_depth.png"),
        (depth_folders(["data/train/depth"], [], "data")[0], "images/train/a/1.png", "a/1.png"),
        (depth_folders(["data/depth/val"], [], "data")[0], "val/images/1.png", "1.png"),
        (depth_folders(["data/val/depth"], [], "data/val/")[0], "images/1.png", "1.png"),
        (depth_folders(["data/maps"], [], "data")[0], "rgb/1.png", "1.png"),
        (depth_folders(["data"], ["data/in/a/rgb"], "data/in")[0], "a/rgb/1.png", "in/a/depth/1.png"),
        (depth_folders(["data"], ["data/rgb"], "data/rgb")[0], "1.png", "depth/1.png"),
    ],
)
def test_names_of_an_image_and_its_map(folder, image, file):
    assert folder.image_key(image) == folder.map_key(file) != ""


@pytest.mark.parametrize(
    ("folder", "image", "file"),
    [
        (CAMVID, "val/1.png", "1_L.png"),
        (CAMVID, "train/1.png", "1.png"),
        (CAMVID, "train/1.png", "2_L.png"),
        (DEPTH, "a/1.jpg", "b/1.png"),
        (DEPTH, "frame-0.color.png", "frame-0.color.png"),
        (WITH_IMAGES, "train/images/1.png", "train/images/1.png"),
        (depth_folders(["data/train/depth"], [], "data")[0], "val/images/1.png", "1.png"),
    ],
)
def test_names_of_other_images(folder, image, file):
    assert (folder.image_key(image) or "image") != (folder.map_key(file) or "file")


def mask(path: str) -> MapFile:
    return MapFile(Part.SEMANTIC, File(path), path)


def test_png_is_chosen_among_files_of_one_name():
    assert choose_file([mask("a.jpg"), mask("a.png"), mask("a.png")]) == mask("a.png")
    with pytest.raises(CollidingImagesError, match=r"a\.PNG and a\.png"):
        choose_file([mask("a.png"), mask("a.PNG")])


def test_blocks_keep_their_keys_and_their_order(tmp_path):
    """Two folders of masks; the image is of the one with the longest prefix."""
    for name in ("masks/train/a.png", "masks/b.png", "masks/c.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    folders = (
        MapFolder(Part.SEMANTIC, str(tmp_path / "masks"), changes=((9, 255),)),
        MapFolder(Part.SEMANTIC, str(tmp_path / "masks" / "train"), "train/"),
    )
    names = ["train/a.jpg", "b.jpg", "d.jpg"]
    rows = np.arange(3)
    block = Block(
        image_id=rows,
        file_name=ragged_texts(names),
        image_size_px=np.zeros((3, 2), np.int64),
        split=np.zeros(3, np.int64),
        file_folder=ragged_texts(["i/"] * 3),
        file_bytes=np.zeros(3, np.int64),
        file_version=ragged_texts([""] * 3),
        is_shared=np.zeros(3, bool),
        state=np.zeros(3, np.int64),
    )
    joined, _ = applied([(7 << 32, pack_block(block))], JoinMaps(folders, ("train",), str(tmp_path / "out")))
    ((key, packed),) = joined
    block = unpack_block(packed)
    assert (key, block.file_name.texts()) == (7 << 32, names[:2])
    maps = [labels.maps for labels in labels_of(block)]
    assert [[(file.file_name, file.changes) for file in files] for files in maps] == [
        [("a.png", ())],
        [("b.png", ((9, 255),))],
    ]
