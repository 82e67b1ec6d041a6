from tests.transforms.storage.conftest import gcs, server

__all__ = ["gcs", "server"]  # fixtures
