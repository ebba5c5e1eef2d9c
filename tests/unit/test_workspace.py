from pathlib import Path

from pipeline.working_storage.workspace import DownloadedFile, Workspace, read_stored

OLDER = """[{"path": "a.txt", "size": 5, "sha512": "ab", "url": "http://source.example/a.txt"}]"""

OLDER_STORED = """{"ark": "ark:/99999/x", "number": 1, "jid": "jid1", "created": "2026-09-01T12:00:00Z",
"files": [{"path": "producer/a.txt", "size": 5, "sha512": "ab", "added": true}], "url": "file:///ocfl/v1"}"""


def test_a_list_that_an_earlier_release_wrote_is_read(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, "attempt-1")
    workspace.downloaded.write_text(OLDER)
    workspace.stored.write_text(OLDER_STORED)

    assert workspace.read_downloaded() == (
        DownloadedFile(path="a.txt", size=5, sha512="ab", url="http://source.example/a.txt"),
    )
    stored, _ = read_stored(workspace)
    assert stored is not None
    assert stored.verified is None
