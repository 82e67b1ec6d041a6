"""A job with more rejects of a reason than are listed."""

import random

import pytest

from tests.conftest import annotation, draw_jpeg, image_row, manifest_of, rejects_of, write_coco


@pytest.fixture
def bound(monkeypatch) -> int:
    for module in ("transforms.dataset.rejects", "schemas.dataset.manifest", "transforms.insight.page"):
        monkeypatch.setattr(f"recordmill.{module}.MOST_LISTED", 20)
    return 20


def test_counts_are_exact_and_the_list_is_bounded_in_any_order_of_rows(tmp_path, recordmill, bound):
    rows = [image_row(id_, f"{id_}.jpg") for id_ in range(4)]
    for row in rows[:-1]:
        draw_jpeg(tmp_path / "images" / row["file_name"])
    unknown = [annotation(id_, image_id=99) for id_ in range(300)]
    lists = []
    for number in range(2):
        random.Random(number).shuffle(unknown)
        instances = write_coco(tmp_path, rows, unknown, [{"id": 1, "name": "cat"}])
        flags = ["--images", tmp_path / "images", "--instances", instances, "--max-rejects", 1]
        out = tmp_path / f"out{number}"
        done = recordmill("coco", *flags, "--output", out)
        assert done.code == 0, done
        assert f"21 of 301 rejects are listed in {out}/rejects-train.jsonl" in done.out
        assert "21 of 301 are listed" in (out / "report.html").read_text()
        assert manifest_of(out)["splits"]["train"]["annotations"]["rejected"] == {"unknown_image": 300}
        assert recordmill("verify", out).code == 0
        lists.append((out / "rejects-train.jsonl").read_bytes())
    assert lists[0] == lists[1]
    listed = [row["id"] for row in rejects_of(out)]
    assert len(set(listed[:bound])) == bound
    assert listed == [*sorted(listed[:bound]), 3]
