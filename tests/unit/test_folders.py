import re
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support import folders, nightly

TESTS = Path(__file__).parents[1]
PROJECT = TESTS.parent


@pytest.mark.parametrize("folder", ["unit", "component", "fuzz"])
@pytest.mark.parametrize("server", sorted(folders.SERVERS))
def test_a_test_that_starts_zookeeper_or_redis_is_refused(folder: str, server: str) -> None:
    assert folders.refusal(folder, ["tmp_path", server]) == (
        f"uses the fixture {server}: move it to tests/integration"
    )


@pytest.mark.parametrize("folder", ["integration", "e2e", "plugins"])
def test_integration_and_end_to_end_tests_may_start_both(folder: str) -> None:
    assert folders.refusal(folder, ["zookeeper", "redis_server"]) == ""


def test_every_folder_of_tests_has_a_meaning() -> None:
    used = {path.parent.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py")}
    plugins = {f"plugins/{path.name}" for path in (PROJECT / "plugins").iterdir() if path.is_dir()}

    assert used - plugins == {"unit", "component", "fuzz", *folders.MARKERS}


def test_collected_tests_carry_the_markers_of_their_folder(request: pytest.FixtureRequest) -> None:
    for item in request.session.items:
        folder = item.path.relative_to(TESTS).parts[0]
        markers = {marker.name for marker in item.iter_markers()}
        own = set(folders.markers(folder, getattr(item, "fixturenames", ())))
        assert markers >= own, item.nodeid
        assert own or markers.isdisjoint({"integration", "e2e"}), item.nodeid


def test_a_test_of_which_no_case_always_runs_is_found(request: pytest.FixtureRequest) -> None:
    def item(name: str, *marks: pytest.MarkDecorator) -> pytest.Item:
        made = pytest.Function.from_parent(request.node.parent, name=name, callobj=lambda: None)
        for mark in marks:
            made.add_marker(mark)
        return made

    short, long = item("test_of_two_forms[1]"), item("test_of_two_forms[2]", nightly.case)
    alone = item("test_at_night[1]", nightly.case)

    assert nightly.without_short_form([short, long, alone]) == [alone.nodeid.removesuffix("[1]")]
    assert nightly.left_out([short, long, alone]) == ([] if nightly.NIGHTLY else [long, alone])


def test_the_long_forms_are_executed_every_night() -> None:
    workflow = (PROJECT / ".github" / "workflows" / "nightly.yml").read_text()

    assert re.search(
        r"run: \./dev test\b(?!.*--cov).*\n +env:\n(?: +[A-Z]+: .*\n)*? +NIGHTLY: \"1\"", workflow
    )


def test_the_longest_files_exist_and_are_run_first(request: pytest.FixtureRequest) -> None:
    files = sorted(TESTS.rglob("test_*.py"), key=folders.turn)

    assert {path.stem for path in files[: len(folders.LONGEST_FIRST)]} <= {*folders.LONGEST_FIRST}
    for name in folders.LONGEST_FIRST:
        assert list(TESTS.rglob(f"{name}.py")), f"{name}: take it out of LONGEST_FIRST"

    processes = getattr(request.config, "workerinput", {"workercount": 1})["workercount"]
    turns = [folders.turn(item.path) for item in request.session.items]
    assert sum(later < earlier for earlier, later in pairwise(turns)) < processes


@pytest.mark.parametrize("processes", [1, 2, 4, 6])
def test_all_processes_but_one_begin_with_long_tests(processes: int) -> None:
    files = sorted(TESTS.rglob("test_*.py"), key=folders.turn)
    tests = [(path, number) for path in files for number in range(20)]

    ordered = folders.distributed(tests, lambda test: test[0], processes)

    assert sorted(ordered) == sorted(tests)
    left, shares = ordered, []
    for number in range(processes):  # as pytest-xdist shares them out
        size = len(left) // (processes - number)
        shares.append(left[:size])
        left = left[size:]
    long = max(1, processes - 1)
    assert [own[0][0] for own in shares[:long]] == files[:long]
    assert folders.turn(shares[-1][-1][0]) > len(folders.LONGEST_FIRST)
    for own in shares:
        turns = [folders.turn(path) for path, _ in own]
        assert turns == sorted(turns)


def test_a_run_of_long_tests_alone_has_them_all() -> None:
    tests = [TESTS / "e2e" / f"test_{number}.py" for number in range(7)]

    assert sorted(folders.distributed(tests, lambda path: path, 4)) == tests
    assert folders.distributed([], lambda path: path, 4) == []
