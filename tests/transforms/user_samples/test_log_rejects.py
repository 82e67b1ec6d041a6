from recordmill.schemas.rejects import Reason, Rejected
from recordmill.transforms.user_samples.log_rejects import RejectLog


def test_first_ten_rejects_are_logged(caplog):
    log = RejectLog()
    for number in range(12):
        log.add(Rejected("annotation", number, Reason.EMPTY_BOX, f"box {number}", 1))
    assert caplog.messages == [f"rejected: box {number}" for number in range(10)]
