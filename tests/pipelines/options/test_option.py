"""What is known of an option is what it is checked by."""

from dataclasses import dataclass

import pytest

from recordmill.pipelines.options.dataset_options import VerifyOptions
from recordmill.pipelines.options.option import READ, WRITE, Kind, Option, Options, option, options_of, redefined
from recordmill.schemas.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Base(Options):
    files: tuple[str, ...] = option(Kind.PATHS, READ).says("files")
    pairs: tuple[str, ...] = option(Kind.PATHS, READ, (), may_repeat=True).says("pairs")
    share: float = option(Kind.NUMBER, WRITE, 0.5, least=0, largest=1, measure="a fraction").says("a share")
    mode: str = option(Kind.CHOICE, WRITE, "fast", choices=("fast", "slow")).says("how")


@dataclass(frozen=True, kw_only=True)
class Other(Base):
    share: float = redefined(Base, "share", 0.25, largest=2, unit="parts")
    count: int | None = option(Kind.INTEGER, WRITE, None, least=1).says("how many")


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"files": ()}, "--files is missing"),
        ({"files": ("a", "b", "a")}, "--files a is given twice"),
        ({"share": -0.1}, "--share -0.1 must be a fraction, 0 to 2 parts"),
        ({"share": 2.1}, "--share 2.1 must be a fraction, 0 to 2 parts"),
        ({"share": float("nan")}, "--share nan must be a fraction, 0 to 2 parts"),
        ({"count": 0}, "--count 0 must be 1 or more"),
        ({"count": 1, "mode": "quick"}, "--mode 'quick' is none of fast, slow"),
        ({"files": (), "count": -1}, "--files is missing; --count -1 must be 1 or more"),
    ],
)
def test_a_fault_is_told(given, fault):
    with pytest.raises(ConfigError) as caught:
        Other(**{"files": ("a",), **given})
    assert str(caught.value) == fault


def test_what_has_no_flag_is_called_as_in_the_help():
    with pytest.raises(ConfigError, match=r"^OUT is missing \(folder of the data set\)$"):
        VerifyOptions(folder="")


def test_what_is_within_bounds_is_taken():
    assert Other(files=("a",), pairs=("m", "m"), share=2, count=1).share == 2
    assert Base(files=("a",), share=0).share == 0


def test_a_redefined_option_keeps_what_is_not_said_anew():
    share = {each.name: each for each in options_of(Other)}["share"]
    assert share.option == Option(
        kind=Kind.NUMBER, group=WRITE, help="a share", least=0, largest=2, measure="a fraction", unit="parts"
    )
    assert (share.default, share.is_required, share.flag, share.usual) == (0.25, False, "--share", "0.25")


def test_options_stand_in_their_order_and_know_their_defaults():
    found = {each.name: (each.default, each.is_required, each.usual) for each in options_of(Other)}
    assert list(found.items()) == [
        ("files", (None, True, "")),
        ("pairs", ((), False, "")),
        ("share", (0.25, False, "0.25")),
        ("mode", ("fast", False, "fast")),
        ("count", (None, False, "")),
    ]
