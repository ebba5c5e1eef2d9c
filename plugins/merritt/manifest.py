"""The XML manifest that the Merritt storage service returns for an object: its versions and their files."""

from dataclasses import dataclass
from datetime import UTC, datetime
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from pipeline.description.xml import local_name
from pipeline.fixity import OF_RECORD, UnknownAlgorithm, algorithm
from pipeline.storage.base import VersionEntry


@dataclass(frozen=True)
class ManifestFile:
    path: str
    size: int
    algorithm: str
    """In canonical spelling if the algorithm is known."""
    digest: str
    version: int
    """The version that added the bytes."""
    key: str = ""
    """The service's name of the bytes: the same for all files and versions that share them."""

    @property
    def sha512(self) -> str | None:
        return self.digest if self.algorithm == OF_RECORD else None


@dataclass(frozen=True)
class ManifestVersion:
    number: int
    created: datetime
    files: dict[str, ManifestFile]


@dataclass(frozen=True)
class ManifestObject:
    ark: str
    versions: tuple[ManifestVersion, ...]
    """In order; never empty."""

    @property
    def head(self) -> ManifestVersion:
        return self.versions[-1]

    def version(self, number: int) -> ManifestVersion | None:
        return next((version for version in self.versions if version.number == number), None)


def parse(data: bytes) -> ManifestObject:
    """Parse the manifest; ValueError says why the document is not one."""
    if b"<!" in data.replace(b"<!--", b""):
        raise ValueError("it has a declaration, which is not allowed")
    try:
        root = ElementTree.fromstring(data)  # noqa: S314 - no declarations, hence no entities, get here
        element = next((e for e in root.iter() if local_name(e) == "object"), None)
        versions = tuple(_version(e) for e in root.iter() if local_name(e) == "version")
    except KeyError as error:
        raise ValueError(f"a version or a file has no {error}") from error
    except (ElementTree.ParseError, ValueError) as error:
        raise ValueError(f"it cannot be parsed: {error}") from error
    if element is None or not versions:
        raise ValueError("it names no object, or no version")
    return ManifestObject(element.get("id", ""), tuple(sorted(versions, key=lambda version: version.number)))


def listed(stored: ManifestObject | None, url: str) -> tuple[VersionEntry, ...]:
    """The versions, without their jobs, which the manifest does not record."""
    if stored is None:
        return ()
    return tuple(
        VersionEntry(
            stored.ark,
            version.number,
            created=version.created,
            url=url,
            digests={path: file.sha512 or "" for path, file in version.files.items()},
        )
        for version in stored.versions
    )


def _version(element: Element) -> ManifestVersion:
    manifest = next((child for child in element if local_name(child) == "manifest"), None)
    if manifest is None:
        raise ValueError(f"version {element.get('id')} has no manifest")
    files = (_file(child) for child in manifest if local_name(child) == "file")
    created = datetime.fromisoformat(manifest.attrib["created"])
    return ManifestVersion(
        int(element.attrib["id"]),
        created if created.tzinfo else created.replace(tzinfo=UTC),
        {file.path: file for file in files},
    )


def _file(element: Element) -> ManifestFile:
    field = {local_name(child): (child.text or "").strip() for child in element}
    try:
        kind = algorithm(field["digestType"])
    except UnknownAlgorithm:
        kind = field["digestType"]
    # ark|version|path: a path may contain a bar, an ARK may not
    key = field["key"]
    added_by = int(key.partition("|")[2].partition("|")[0])
    return ManifestFile(
        element.attrib["id"], int(field["size"]), kind, field["digest"].lower(), added_by, key
    )
