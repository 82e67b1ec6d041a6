"""docs/tutorials/yolo_to_pytorch.md, run by torchvision."""

from tests.tutorials import run_tutorial


def test_yolo_to_pytorch(tmp_path, monkeypatch, recordmill):
    monkeypatch.chdir(tmp_path)
    assert len(run_tutorial("yolo_to_pytorch", recordmill, BATCH=2, STEPS=1)) == 1  # a step is slow on a CPU
