"""Each cure that a message prints works as printed, or fails for another reason that is named."""

import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

import recordmill
from recordmill.launch.cli import main
from recordmill.pipelines.choose_format import convert_fields
from tests.conftest import leave_pages_empty
from tests.literal_data import write_files
from tests.matrix.cures import CURES, Cure
from tests.matrix.proposals import messages, proposals, texts


def run(words: list[str], capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> tuple[int, str]:
    """Run a command. Return its exit code, and all that it prints.

    `open DIR` reads a record from Python; `damage` and `delete` change the files of a pattern.
    """
    verb, *rest = words
    if verb in ("damage", "delete"):
        for path in Path().glob(rest[0]):
            path.write_bytes(b"damaged") if verb == "damage" else path.unlink()
        return 0, ""
    caplog.clear()
    if verb == "open":
        error = ""
        try:
            recordmill.open(rest[0])["train"][0]
        except recordmill.RecordmillError as fault:
            error = str(fault)
        return int(bool(error)), "\n".join([error, *caplog.messages])
    code = main([*words, *(["--progress", "none"] if verb in ("convert", "folder", "extract", "verify") else [])])
    captured = capsys.readouterr()
    return code, "\n".join([captured.out + captured.err, *caplog.messages])  # pytest takes the log from the console


def split_flags(words: list[str]) -> list[list[str]]:
    """Return each flag with its value; other cures as they are."""
    starts = [at for at, word in enumerate(words) if word.startswith("--")]
    if words[0] in ("recordmill", "DATA"):
        return [words]
    return [words[start:end] for start, end in pairwise([*starts, len(words)])]


def cured(command: list[str], cure: list[str], words: dict[str, str]) -> list[str]:
    """Return a command with a cure in it: the proposed one, or that with another DATA, or with another flag."""
    cure = [words.get(word, word) for word in cure]
    cure = [re.sub(r"=[A-Z]+$", lambda value: "=" + words.get(value[0][1:], ""), word) for word in cure]
    if cure[0] == "recordmill":
        return ["again" if word in ("OUT", "out") else word for word in cure[1:]]
    if cure[0] == "DATA":
        flags = next(at for at, word in enumerate(command) if word.startswith("-"))
        return [command[0], *cure[1:], *command[flags:]]
    rest = list(command)
    repeatable = {field.flag for field in convert_fields() if "repeatable" in field.text}
    if cure[0] in rest and cure[0] not in repeatable:
        at = rest.index(cure[0])
        del rest[at : at + len(cure)]
    return [*rest, *cure]


@pytest.mark.parametrize("row", CURES, ids=lambda row: f"{Path(row.module).stem}: {row.cure}")
def test_cure_works_as_printed(row: Cure, tmp_path, monkeypatch, capsys, caplog):
    leave_pages_empty(monkeypatch)
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path, row.files)
    for command in row.commands:
        _, text = run(shlex.split(command), capsys, caplog)
    cures = split_flags(shlex.split(row.cure.replace("{folder}", str(tmp_path))))
    assert [cure for cure in cures if cure not in proposals(text)] == [], text
    command = shlex.split(row.commands[-1])
    if row.in_place_of:
        at = command.index(row.in_place_of)
        command = command[:at] + command[at + 2 :]
    fixed = command
    for cure in cures:
        fixed = cured(fixed, cure, row.words)
    if row.fresh and "-o" in fixed:
        fixed[fixed.index("-o") + 1] = "again"
    code, text_after = run(fixed, capsys, caplog)
    if row.then:
        assert code != 0
        assert row.then in text_after
    else:
        assert code == 0, text_after
    assert text_after != text


_SUBJECT = "the flag is the subject of a fault"
_DOWNLOADED = "weights of keras.applications have to be downloaded"
_OTHER_PARTS = "commands of all parts come first: tests/jobs/test_parts.py runs them"
_OTHER_WRITER = "records that no conversion writes"
EXEMPT = {  # module, literal part of the message: why no small input brings it
    ("pipelines/extract.py", "depth maps count in units of"): "flags of a later command: tests/jobs/test_maps.py",
    ("pipelines/repack.py", "stores masks of objects as --masks rle only"): "the cure is for an earlier command",
    ("transforms/encoders/load_model.py", "--weights"): _DOWNLOADED,
    ("pipelines/embed.py", "Give --weights imagenet"): _DOWNLOADED,
    ("pipelines/choose_format.py", "give --model NAME"): _DOWNLOADED,
    ("transforms/insight/read_examples.py", "recordmill verify %s"): "shards that change while the page is drawn",
    ("transforms/insight/write_report.py", "recordmill report %s"): "a fault of storage, or of this project",
    ("transforms/shards/limit_records.py", "--masks rle"): "a record of 2 GiB",
    ("transforms/containers/sample_json.py", "--container arrayrecord"): _OTHER_WRITER,
    ("transforms/containers/sample_values.py", "--container arrayrecord"): _OTHER_WRITER,
    ("transforms/records/tar.py", "--container arrayrecord"): "an image of 8 GiB",
    ("launch/verbs/verify.py", "--check decode"): "an environment without TensorFlow, or remote workers",
    ("pipelines/recognise.py", "by --instances FILE or --labels FILE"): "there is no file of a known format",
    ("pipelines/recognise.py", "by --format NAME"): "there is no file of a known format",
    ("transforms/table/table_options.py", "Add --text counts, tfidf or tokens"): "any of several values",
    ("schemas/inputs/file_kinds.py", "--format {} reads"): "a reject of a stray file; the flag is not for all of DATA",
    ("schemas/inputs/image_options.py", "--writer beam"): _SUBJECT,
    ("transforms/annotated/format_options.py", "--layout classification stores a class"): _SUBJECT,
    ("schemas/inputs/options.py", "--writer beam"): _SUBJECT,
    ("transforms/shards/write_shards.py", "--writer beam"): _SUBJECT,
    ("transforms/shards/write_shards.py", "--container {} has no empty shards"): _SUBJECT,
    ("transforms/join/drop_images.py", "--duplicates drop: "): _SUBJECT,
    ("transforms/grow/grow_images.py", "--duplicates drop: "): _SUBJECT,
    ("launch/preflight/claim_output.py", "and --split {} would write"): _SUBJECT,
    ("transforms/dataset/fact_lines.py", "--group"): _SUBJECT,
    ("transforms/shards/seal_parts.py", "and then: recordmill seal {}"): _OTHER_PARTS,
    ("transforms/shards/seal_parts.py", "--part {}"): _OTHER_PARTS,
    ("launch/verbs/seal.py", "and then: recordmill seal {}"): _OTHER_PARTS,
    ("launch/command_line/help.py", "usage: "): "the usage of a verb",
    ("launch/runners/run.py", "--project={} --region={}"): "flags of gcloud",
}


def test_every_message_with_a_cure_has_a_row_or_a_reason():
    rows = {(row.module, row.message) for row in CURES}
    unknown = [
        message
        for message in messages()
        if not any(module == message.module and part in message.text for module, part in {*rows, *EXEMPT})
    ]
    assert [f"{message.module}:{message.line}: {message.text}" for message in unknown] == []


def test_rows_and_reasons_are_of_messages_of_today():
    known_texts = [(message.module, message.text) for message in texts()]
    stale = [
        (module, part)
        for module, part in {*((row.module, row.message) for row in CURES), *EXEMPT}
        if not any(module == known and part in text for known, text in known_texts)
    ]
    assert stale == []
