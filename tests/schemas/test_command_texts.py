import pytest

from recordmill.schemas.command_texts import python_text, without_flags

KEYWORDS = {
    **dict.fromkeys(("gzip", "overwrite", "stratify"), "bool"),
    "num_shards": "int | None",
    "max_rejects": "float",
    "shard_size": "int | str",
    "split": "Shares",
    "void": "Texts",
    "boxes": "Literal['clip', 'drop'] | None",
    **dict.fromkeys(("images", "instances", "labels"), "Paths"),
    **dict.fromkeys(("label", "format", "group_from"), "str | None"),
}
COMMANDS = {
    "recordmill convert x -o OUT": 'recordmill.convert("x", "OUT")',
    "recordmill convert a b --gzip --num-shards 4": 'recordmill.convert(["a", "b"], gzip=True, num_shards=4)',
    "recordmill convert --images i --instances=a --instances b -o o": (
        'recordmill.convert(output="o", images="i", instances=["a", "b"])'
    ),
    "recordmill convert 'a b' --label c --shard-size 5K": 'recordmill.convert("a b", label="c", shard_size="5K")',
    # Punctuation, and a word that is no value, end it.
    "recordmill convert x --format voc, or add": 'recordmill.convert("x", format="voc"), or add',
    "(recordmill convert x --gzip) --gzip": '(recordmill.convert("x", gzip=True)) gzip=True',
    "recordmill convert x --format voc reads --gzip": 'recordmill.convert("x", format="voc") reads gzip=True',
    "recordmill convert --help has": "help(recordmill.convert) has",
    "recordmill convert x --unknown 3": "recordmill convert x --unknown 3",
    "recordmill convert x -- --runner=Flink": "recordmill convert x -- --runner=Flink",
    "Convert again with --images 'a b' --images c/d.e --gzip and": (
        'Convert again with images=["a b", "c/d.e"], gzip=True and'
    ),
    "convert again with --overwrite.": "convert again with overwrite=True.",
    "Convert again with a smaller --num-shards": "Convert again with a smaller num_shards",
    # Others have no call.
    "recordmill verify out --format decode; --gzip": "recordmill verify out --format decode; gzip=True",
    "recordmill index out writes it": "recordmill index out writes it",
    "which recordmill convert reads": "which recordmill convert reads",
}
FLAGS = {
    "--num-shards 0 must be": "num_shards=0 must be",
    "--max-rejects 0.5": "max_rejects=0.5",
    "--split train=0.8,val=0.2, or": 'split="train=0.8,val=0.2", or',
    "--split '1,2': a name": 'split="1,2": a name',
    "unknown: --void 1,2,34. Or": 'unknown: void="1,2,34". Or',
    "--boxes drop skips it": 'boxes="drop" skips it',
    "--boxes skips it": "boxes skips it",
    "--group-from REGEX": 'group_from="REGEX"',
    "--images /no/images: no such folder": "images /no/images: no such folder",
    "--stratify and --gzip": "stratify=True and gzip=True",
    "/data/my--gzip, a--gzip, --other 3": "/data/my--gzip, a--gzip, --other 3",
    "the same command; DATA; METADATA; --label is a flag of table": (
        "the same call; data; METADATA; label is an option of table"
    ),
}


@pytest.mark.parametrize(("text", "expected"), (COMMANDS | FLAGS).items())
def test_python_text(text, expected):
    assert python_text(text, KEYWORDS) == expected


def test_without_flags():
    names = {"--gzip": "gzip", "--num-shards": "num_shards"}
    text = "--gzip: recordmill convert x --num-shards 4 -o OUT. Or --num-shards 4, --other"
    expected = "gzip: recordmill convert x --num-shards 4 -o OUT. Or num_shards 4, --other"
    assert without_flags(text, names) == expected
