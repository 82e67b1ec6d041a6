"""What verify and extract tell when they are done."""

import pytest

from recordmill.launch.terminal.fault_summary import print_checks
from recordmill.launch.terminal.summary import terminal
from recordmill.schemas.plan_report import Fault, Faults, ShardCheck


def test_what_verify_found(capsys):
    fault = Fault("coco-val.tfrecord-00000-of-00001", 17, "data_crc", "the checksum\nis wrong")
    lost = Fault("coco-val.tfrecord-00000-of-00001", None, "count", "17 records, the manifest says 18")
    checks = [
        ShardCheck("val", "x", 17, 30, 400, 500, Faults((fault, lost))),
        ShardCheck("train", "y", 1000, 7000, 1, 2_000_000, Faults()),
        ShardCheck("train", "z", 500, 1, 1, 500_000, Faults()),
    ]
    print_checks(terminal(), "out", checks, Faults((fault, lost)))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[:3]] == [
        ["split", "shards", "examples", "objects", "size"],
        ["train", "2", "1,500", "7,001", "2.5", "MB"],
        ["val", "1", "17", "30", "500", "bytes"],
    ]
    assert lines[3:] == [
        "coco-val.tfrecord-00000-of-00001 record 17: data_crc: the checksum\\nis wrong",
        "coco-val.tfrecord-00000-of-00001: count: 17 records, the manifest says 18",
        "out: 2 faults",
    ]


def test_only_the_first_faults_are_shown_and_all_are_counted(capsys):
    faults = [Fault("x", number, "class", "") for number in range(1023)]
    print_checks(terminal(), "out", [], Faults(tuple(faults)))
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("x record")] == [f"x record {n}: class: " for n in range(20)]
    assert lines[-2:] == ["… and 1,003 more", "out: 1,023 faults"]


def test_a_data_set_that_is_whole(capsys):
    print_checks(terminal(), "out", [ShardCheck("train", "y", 1, 1, 1, 1, Faults())], Faults())
    assert capsys.readouterr().out.splitlines()[-1] == "out: whole: every record read, parsed and decoded"


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1000, "1.0 kB"),
        (999_999, "1.0 MB"),
        (2 * 10**15, "2,000.0 TB"),
    ],
)
def test_sizes_are_in_powers_of_ten(capsys, size, text):
    print_checks(terminal(), "out", [ShardCheck("train", "y", 1, 1, 1, size, Faults())], Faults())
    assert capsys.readouterr().out.splitlines()[1].split(maxsplit=4)[4].rstrip() == text


def test_no_number_is_cut_where_the_terminal_is_narrow(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    print_checks(
        terminal(), "out", [ShardCheck("train", "a", 12_345_678, 98_765_432, 1, 123_456_789, Faults())], Faults()
    )
    assert "train       1  12,345,678  98,765,432  123.5 MB\n" in capsys.readouterr().out
