import xml.etree.ElementTree as ET

import pytest

from recordmill.schemas.statistics import Bin, Distribution
from recordmill.transforms.insight.charts import ChartBin, bar_chart, chart_bins, chart_centres, long_tail


def distribution(*bins: tuple[float, float, int]) -> Distribution:
    return Distribution(sum(bin_[2] for bin_ in bins), 0, 0, 0, 0, 0, 0, tuple(Bin(*bin_) for bin_ in bins))


def shapes(svg: str, tag: str) -> list[ET.Element]:
    return [element for element in ET.fromstring(svg).iter() if element.tag == tag]


def test_texts_stay_within_the_chart():
    """The text of the last bar is longer than the bar is wide."""
    svg = bar_chart([ChartBin("x", f"{number:02}.5 kB", [number == 16]) for number in range(17)], "sizes")
    texts = {element.text: element for element in shapes(svg, "text") if element.text.endswith("kB")}
    assert "16.5 kB" in texts
    for text, element in texts.items():
        assert float(element.get("x")) + (0 if element.get("text-anchor") == "end" else len(text) * 4) <= 360


def test_all_one_bin_is_hundred_percent():
    svg = bar_chart([ChartBin("x", "1", [7])], "sizes")
    assert {element.text for element in shapes(svg, "text")} == {"0%", "50%", "100%", "1"}


def test_bins_without_gaps():
    bins = chart_bins([distribution((0, 0, 4), (3, 3.5, 1)), None, distribution((6, 7, 2))], True, str)
    assert [(bin_.label, bin_.begin, bin_.numbers) for bin_ in bins] == [
        ("0", "0", [4, 0, 0]),
        ("3", "3", [1, 0, 0]),
        ("4", "4", [0, 0, 0]),
        ("5", "5", [0, 0, 0]),
        ("6", "6", [0, 0, 2]),
    ]
    halves = chart_bins([distribution((0.5, 0.625, 1), (0.75, 0.875, 2))], False, "{:.3g}".format)
    assert [(bin_.label, bin_.begin) for bin_ in halves] == [
        ("0.5–0.625", "0.5"),
        ("0.625–0.75", "0.625"),
        ("0.75–0.875", "0.75"),
    ]


def test_bars_are_as_high_as_their_part_of_split():
    table = chart_bins([distribution((1, 1.25, 30), (2, 2.5, 10)), distribution((1, 1.25, 1), (2, 2.5, 3))], True, str)
    svg = bar_chart(table, 'a "label"')
    bars = {(bar.get("class"), bar[0].text): float(bar.get("height")) for bar in shapes(svg, "rect")}
    assert set(bars) == {("s0", "1: 30"), ("s1", "1: 1"), ("s0", "2: 10"), ("s1", "2: 3")}
    assert bars["s0", "1: 30"] == bars["s1", "2: 3"] == 148  # all there is room for
    assert bars["s0", "2: 10"] == pytest.approx(148 / 3, abs=0.1)
    assert [float(bar.get("x")) for bar in shapes(svg, "rect")] == pytest.approx([57, 124.5, 214, 281.5], abs=0.1)
    assert ET.fromstring(svg).attrib["aria-label"] == 'a "label"'


@pytest.mark.parametrize(
    ("bins", "highest"),
    [
        (((8, 10, 20), (10, 12, 20)), "50%"),
        (((7, 8, 30), (8, 10, 10)), "75%"),
        (((0.5, 0.625, 9),), "100%"),  # a third of an octave
        (((0, 0, 1), (1, 1.25, 7)), "88%"),
    ],
)
def test_axis_is_the_share_of_a_bin(bins, highest):
    svg = bar_chart(chart_bins([distribution(*bins)], False, str), "x")
    assert [text.text for text in shapes(svg, "text") if text.text.endswith("%")][-1] == highest


def test_classes_by_frequency():
    (line,) = shapes(long_tail([[1, 1000, 0, 10]], "x"), "polyline")
    points = [tuple(map(float, point.split(","))) for point in line.get("points").split()]
    (x1, y1), (x2, y2), (x3, y3) = points
    assert x1 < x2 < x3
    assert (y1 - 8, round(y2 - y1) * 1.0) == (0, round((y3 - y1) * 2 / 3))


def test_map_is_strongest_where_most_is():
    cells = shapes(chart_centres("x", [[0, 5], [10, 0]]).svg, "rect")
    assert [(cell.get("x"), cell.get("y"), cell.get("fill-opacity"), cell[0].text) for cell in cells] == [
        ("14", "0", "0.50", "5"),
        ("0", "14", "1.00", "10"),
    ]
