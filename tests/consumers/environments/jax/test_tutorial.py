"""docs/tutorials/coco_to_jax.md, with a CPU as eight devices."""

from tests.tutorials import run_tutorial


def test_coco_to_jax(tmp_path, monkeypatch, recordmill):
    monkeypatch.chdir(tmp_path)
    devices = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}
    smaller = {"SIZE": 32, "BATCH": 16, "OBJECTS": 8, "STEPS": 40}
    (printed,) = run_tutorial("coco_to_jax", recordmill, devices, **smaller)
    assert "devices: 8 of cpu" in printed
