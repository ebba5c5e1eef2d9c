import zipfile
from pathlib import Path

from pipeline.fixity import Digest, digest_file
from tools.demo import collection
from tools.demo.run import HARBOUR


def rows(manifest: Path) -> list[list[str]]:
    lines = manifest.read_text().splitlines()
    return [[part.strip() for part in line.split("|")] for line in lines if line and line[0] != "#"]


def test_the_samples_manifests_declare_what_the_files_are() -> None:
    declared = [row for path in sorted(HARBOUR.glob("*/object.checkm")) for row in rows(path)]
    assert len(declared) >= 9
    for url, algorithm, value, size, *_ in declared:
        path = HARBOUR / url.removeprefix("{base}/")
        if algorithm:
            digest_file(path, [algorithm]).check(Digest(algorithm=algorithm, value=value), url)
        if size:
            assert path.stat().st_size == int(size), url


def test_a_prepared_collection_has_addresses_and_containers(tmp_path: Path) -> None:
    collection.prepare(HARBOUR, tmp_path / "out", "http://127.0.0.1:1")

    listed = [row[0] for path in (tmp_path / "out").rglob("*.checkm") for row in rows(path)]
    assert len(listed) >= 9
    for url in listed:
        assert (tmp_path / "out" / url.removeprefix("http://127.0.0.1:1/")).is_file(), url
    with zipfile.ZipFile(tmp_path / "out" / "containers" / "harbour-master.zip") as archive:
        assert "letters/1911-05-02.txt" in archive.namelist()
