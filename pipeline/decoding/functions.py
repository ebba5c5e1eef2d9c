"""What a decoding process can be asked for: each function reads foreign bytes and yields results for JSON.

`pipeline.decoding.calls` has the worker's side of each.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.attempt import Attempt
from pipeline.containers import bag, declared
from pipeline.containers.declared import UnpackedContainer
from pipeline.containers.unpack import Limits, unpack
from pipeline.description import embargo, metadata
from pipeline.manifests import deletion_list
from pipeline.manifests.checkm import ManifestProfile, parse_rows

CHECK, REMARK, DIGEST, DELETION, ERC, DUBLIN_CORE = (
    "check",
    "remark",
    "digest",
    "deletion",
    "erc",
    "dublin-core",
)


@dataclass(frozen=True, slots=True)
class _File:
    size: int
    sha512: str


Arguments = dict[str, Any]
Function = Callable[[Arguments, bytes, Attempt], Iterator[Any]]


def _unpack(given: Arguments, _body: bytes, attempt: Attempt) -> Iterator[Any]:
    limits = Limits(**given["limits"])
    for file in unpack(Path(given["path"]), given["name"], Path(given["target"]), limits, attempt):
        yield file.path, file.size, file.sha512, file.name_encoding, file.raw_name


def _statements(given: Arguments, body: bytes, attempt: Attempt) -> Iterator[Any]:
    """What the files of a deposit say about the deposit; `body` lists the files."""
    producer = Path(given["producer"])
    files = {path: _File(size, sha512) for path, size, sha512 in json.loads(body)}
    del body
    if given["deletes"]:
        yield from ((DELETION, path) for path in deletion_list.read(producer))
    if given["container"]:
        unpacked = UnpackedContainer(producer, files, attempt)
        if sentence := declared.check_manifest(unpacked):
            yield CHECK, sentence
        yield from ((CHECK, sentence) for sentence in bag.check_bags(unpacked))
        yield from ((REMARK, sentence) for sentence in unpacked.remarks)
        for confirmed in unpacked.confirmed_digests():
            digest = confirmed.digest
            yield DIGEST, confirmed.path, digest.algorithm, digest.value, confirmed.declared_by
    if embargo.NAME in files:
        yield CHECK, embargo.check(metadata.read_file(producer / embargo.NAME) or b"")
    elements = metadata.read_elements(producer)
    yield from ((ERC, name, values) for name, values in elements.erc.items())
    yield from ((DUBLIN_CORE, name, values) for name, values in elements.dublin_core.items())


def _fetch_lists(given: Arguments, body: bytes, attempt: Attempt) -> Iterator[Any]:
    """The payload of bags that is to be fetched; `body` lists the files that are there."""
    files = {path: _File(size, "") for path, size in json.loads(body)}
    unpacked = UnpackedContainer(Path(given["folder"]), files, attempt)
    for file in bag.files_to_fetch(unpacked, case_fold=given["case_fold"], most=given["most"]):
        yield file.path, file.url, file.size, file.digest.algorithm, file.digest.value, file.where


def _manifest(given: Arguments, body: bytes, _attempt: Attempt) -> Iterator[Any]:
    profile = ManifestProfile(given["profile"])
    for row in parse_rows(body, given["source"], profile, given["case_fold"], given["most"]):
        values = {name: getattr(row, name) for name in row.__slots__ if name != "digest"}
        yield values, row.digest and (row.digest.algorithm, row.digest.value)


FUNCTIONS: dict[str, Function] = {
    "unpack": _unpack,
    "fetch lists": _fetch_lists,
    "statements": _statements,
    "manifest": _manifest,
}
