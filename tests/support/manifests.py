"""Checkm manifests as text, and their findings."""

import pytest

from pipeline.manifests.checkm import ManifestError, ManifestProfile, parse

URL = "https://x.edu/files/a.jpg"
MD5 = "0b21c6d48e815dd537d42dc1cfac0111"
MANIFEST = "http://uc3.cdlib.org/registry/ingest/manifest/"
OBJECT = f"#%profile | {MANIFEST}mrt-ingest-manifest"
BATCH = f"#%profile | {MANIFEST}mrt-batch-manifest"
CONTAINERS = f"#%profile | {MANIFEST}mrt-container-batch-manifest"
FILES = f"#%profile | {MANIFEST}mrt-single-file-batch-manifest"


def manifest(*rows: str, profile: str = OBJECT, end: str = "#%eof\n") -> bytes:
    return "\n".join(["#%checkm_0.7", profile, *rows, end]).encode()


def problems(data: bytes, expected: ManifestProfile | None = None) -> list[str]:
    with pytest.raises(ManifestError) as caught:
        parse(data, "test", expected)
    return [str(problem) for problem in caught.value.problems]
