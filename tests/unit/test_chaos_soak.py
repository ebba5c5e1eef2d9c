"""A soak tells a process that grows from one that does not."""

from tools.chaos.soak import Series, SoakResult, quarters, table


def test_a_process_that_keeps_its_size_after_its_start_is_flat() -> None:
    assert Series(rss_kb=[50_000, *[100_000] * 99], files=[10, *[40] * 99]).flat


def test_memory_that_grows_all_the_time_is_not_flat() -> None:
    assert not Series(rss_kb=[100_000 + 1000 * n for n in range(100)], files=[40] * 100).flat


def test_files_that_are_never_closed_are_not_flat() -> None:
    assert not Series(rss_kb=[100_000] * 100, files=[40 + n for n in range(100)]).flat


def test_a_process_that_grew_is_named_and_the_soak_is_not_clean() -> None:
    growing = Series(rss_kb=[100_000 + 1000 * n for n in range(100)], files=[40] * 100)
    result = SoakResult(10, 5.0, {"worker1": growing}, ())

    assert not result.clean
    assert "| worker1 |" in table(result)
    assert "NO" in table(result)


def test_the_figures_are_the_medians_of_four_quarters() -> None:
    assert quarters([1, 1, 2, 2, 3, 3, 9, 9]) == [1, 2, 3, 9]
