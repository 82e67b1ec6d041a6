"""Work done ahead comes out in order, within bounds, and with its errors."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from recordmill.transforms.runtime.look_ahead import look_ahead


@pytest.mark.parametrize("number", [0, 1, 5, 100])
def test_results_are_in_the_order_of_the_items(number):
    with ThreadPoolExecutor(2) as pool:
        assert list(look_ahead(str, range(number), pool, 2)) == [str(item) for item in range(number)]


def test_few_items_are_taken_ahead():
    taken = []

    def items():
        for item in range(100):
            taken.append(item)
            yield item

    with ThreadPoolExecutor(2) as pool:
        results = look_ahead(str, items(), pool, 2)
        assert next(results) == "0"
        assert taken == [0, 1, 2, 3, 4]


def test_an_error_comes_where_its_result_would():
    with ThreadPoolExecutor(2) as pool:
        results = look_ahead(lambda item: 1 // item, [1, 1, 0, 1], pool, 2)
        assert [next(results), next(results)] == [1, 1]
        with pytest.raises(ZeroDivisionError):
            next(results)
