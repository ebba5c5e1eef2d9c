"""Any history of adds, updates and resets: the inventory says what a plain dictionary would say."""

import hashlib
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.fixity import ContentFile
from pipeline.records import SubmissionMode
from pipeline.storage.base import StoreRequest
from pipeline.storage.ocfl import objects

NAMES = st.sampled_from(["producer/a", "producer/b", "producer/c d", "system/mrt-erc.txt"])
TEXTS = st.sampled_from(["", "one", "two", "three"])
STEPS = st.tuples(
    st.sampled_from(SubmissionMode), st.dictionaries(NAMES, TEXTS, min_size=1), st.sets(NAMES, max_size=2)
)
AT = datetime(2026, 9, 1, tzinfo=UTC)


def digest(text: str) -> str:
    return hashlib.sha512(text.encode()).hexdigest()


def content_file(path: str, text: str) -> ContentFile:
    return ContentFile(path, Path("unused"), len(text), digest(text))


@given(st.lists(STEPS, min_size=1, max_size=6))
def test_versions_have_the_requested_files_and_no_bytes_are_stored_twice(
    steps: list[tuple[SubmissionMode, dict[str, str], set[str]]],
) -> None:
    head: objects.Inventory | None = None
    model: dict[str, str] = {}
    expected: list[dict[str, str]] = []
    for number, (requested, files, removable) in enumerate(steps, 1):
        mode = SubmissionMode.ADD if head is None and requested is SubmissionMode.RESET else requested
        update = mode is SubmissionMode.UPDATE
        carried = {path: text for path, text in model.items() if path.startswith("producer/")}
        delete = tuple(sorted(removable & carried.keys())) if update and head else ()
        if not any(path.startswith("producer/") for path in (carried.keys() - set(delete)) | files.keys()):
            delete = ()  # an update may not take out the last file
        kept = {path: text for path, text in carried.items() if path not in delete} if update else {}
        model = {**kept, **files}
        expected.append({path: digest(text) for path, text in model.items()})
        request = StoreRequest(
            ark="ark:/99999/x",
            jid=f"jid{number}",
            mode=mode,
            files=tuple(content_file(path, text) for path, text in files.items()),
            delete=delete,
            created=AT,
        )
        following = objects.next_inventory(head, request)
        assert head is None or objects.extends(following, head)
        head = following

    assert head is not None
    assert [version.digests() for version in head.versions.values()] == expected
    assert [head.number_of(f"jid{number}", "") for number in range(1, len(steps) + 1)] == [
        *range(1, len(steps) + 1)
    ]
    assert set(head.manifest) == {value for version in expected for value in version.values()}
    assert all(len(paths) == 1 for paths in head.manifest.values())
    assert objects.parse(head.encode(), Path("inventory.json")) == head


def test_the_same_inventory_is_parsed_once_and_a_large_one_is_not_kept_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    request = StoreRequest(
        ark="ark:/99999/y",
        jid="jid1",
        mode=SubmissionMode.ADD,
        files=(content_file("producer/a", "one"),),
        created=AT,
    )
    stored = objects.next_inventory(None, request).encode()

    def read() -> objects.Inventory:
        return objects.parse(bytes(bytearray(stored)), "inventory.json")

    first = read()
    assert read() is first
    monkeypatch.setattr(objects, "SMALL", len(stored) - 1)
    assert read() is not read()
    assert read() == first
