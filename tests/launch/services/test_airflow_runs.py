"""Which folders of runs are deleted, and which on no account."""

import hashlib

import pytest

from recordmill.launch.services.airflow_runs import (
    Latest,
    Retention,
    RunFolder,
    RunNote,
    decoded_latest,
    encoded,
    is_newer,
    retention,
)
from recordmill.schemas.errors import ConfigError

DAYS = [f"202611{day:02}t020000" for day in range(1, 6)]


def run(name: str, **changes) -> RunFolder:
    """The folder of a whole run, unless something in its note is changed."""
    digest = hashlib.sha256(b"manifest").hexdigest()
    note = {"dag_id": "recordmill_coco", "run": name, "manifest_sha256": digest} | changes
    return RunFolder(name, encoded(RunNote(**note)), b"manifest")


def kept(folders: list[RunFolder], keep: int = 2, spared: frozenset[str] = frozenset()) -> Retention:
    return retention("recordmill_coco", folders, keep, spared)


def test_all_but_the_newest_go_whatever_order_they_are_listed_in():
    assert kept([run(DAYS[number]) for number in (3, 0, 4, 2, 1)]) == Retention(DAYS[:3], DAYS[3:], {})
    assert kept([run(day) for day in DAYS], keep=5) == kept([run(day) for day in DAYS], keep=9) == ([], DAYS, {})
    within_a_second = [run("20261101t020000"), run("20261101t020000000001")]
    assert kept(within_a_second, keep=1).delete == ["20261101t020000"]


def test_this_run_and_the_latest_stay_whatever_their_age():
    spared = frozenset({DAYS[0], DAYS[1]})
    assert kept([run(day) for day in DAYS], 2, spared) == Retention([DAYS[2]], [*DAYS[:2], *DAYS[3:]], {})


@pytest.mark.parametrize(
    ("old", "why"),
    [
        (RunFolder(DAYS[0], None, b"manifest"), "no note"),
        (RunFolder(DAYS[0], b"{", b"manifest"), "no note"),
        (run(DAYS[0], dag_id="recordmill_folder"), "no note"),
        (run(DAYS[0], run=DAYS[1]), "no note"),  # a copy
        (run("golden"), "no note"),
        (run(DAYS[0])._replace(manifest=None), "not finished"),
        (run(DAYS[0], manifest_sha256="0"), "a split that was added"),
    ],
)
def test_what_is_not_as_a_run_left_it_is_left_alone_and_does_not_count(old, why):
    found = kept([old, *map(run, DAYS[1:])])
    assert (found.delete, found.keep, list(found.left)) == (DAYS[1:3], DAYS[3:], [old.name])
    assert why in found.left[old.name]


def test_what_was_begun_is_ended():
    """Before its files go, a folder is marked: its manifest is the first of them."""
    begun = run(DAYS[4], manifest_sha256="", is_going=True)
    assert kept([run(DAYS[0]), begun, begun._replace(name=DAYS[3], manifest=None)]).delete == [DAYS[4]]
    assert kept([begun._replace(manifest=None)]).delete == [DAYS[4]]


def test_latest_json():
    latest = Latest("gs://b/x", DAYS[1], "0")
    assert encoded(latest) == (
        b'{\n  "folder": "gs://b/x",\n  "run": "20261102t020000",\n  "manifest_sha256": "0"\n}\n'
    )
    assert decoded_latest(encoded(latest), "latest.json") == latest
    assert is_newer(latest, None)
    assert is_newer(latest, latest)  # cleared, and run again
    assert not is_newer(Latest("gs://b/y", DAYS[0], "1"), latest)
    assert is_newer(Latest("gs://b/y", DAYS[2], "1"), latest)
    with pytest.raises(ConfigError, match=r"gs://b/latest\.json is none of publish's"):
        decoded_latest(b"[]", "gs://b/latest.json")
