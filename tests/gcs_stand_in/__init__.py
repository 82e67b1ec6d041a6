"""A stand-in for Google Cloud Storage on loopback: what google-cloud-storage asks, and what goes wrong.

    with running() as gcs:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs.url)
        gcs.put("images/1.jpg", data)
        gcs.faults.append(Fault(Kind.STATUS, operation="read", name="*.jpg", status=503, times=2))
        ...
        assert [call.range for call in gcs.calls("read")] == ["", "", ""]

It keeps everything in memory and knows nothing of credentials. Operations, as the log and the faults name them:

    bucket  metadata of a bucket                 upload  an object in one request, metadata first or not
    list    names of a bucket                    start   of an upload in chunks (a session)
    stat    metadata of an object                chunk   of such an upload, or the question how far it is
    read    bytes of an object, or a range       copy    an object, within this server
    delete  an object
"""

from tests.gcs_stand_in.requests import Call, Fault, Kind
from tests.gcs_stand_in.server import ACCOUNT, BUCKET, REQUESTER_PAYS, GcsStandIn, running

__all__ = ["ACCOUNT", "BUCKET", "REQUESTER_PAYS", "Call", "Fault", "GcsStandIn", "Kind", "running"]
