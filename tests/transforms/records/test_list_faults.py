from recordmill.schemas.checks import Fault
from recordmill.transforms.records.read_shards import LISTED_OF_REASON, FaultList


def faults_of(reason: str, number: int) -> list[Fault]:
    return [Fault("a", record, reason, "") for record in range(number)]


def test_the_first_of_each_reason_are_listed_and_all_are_counted():
    one, other = FaultList(), FaultList()
    one.add(faults_of("class", LISTED_OF_REASON + 7))
    one.add(faults_of("mask", 2))
    other.add(faults_of("class", 3))
    other.add_listed(one.faults())
    found = other.faults()
    expected = faults_of("class", 3) + faults_of("class", LISTED_OF_REASON - 3) + faults_of("mask", 2)
    assert (list(found.listed), len(found)) == (expected, LISTED_OF_REASON + 12)
