"""What the Merritt storage service says of an object: its manifest in XML, version for version."""

from dataclasses import dataclass
from datetime import UTC, datetime
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from pipeline.fixity import OF_RECORD, UnknownAlgorithm, algorithm


class NotAManifest(ValueError):
    """The document is not an object's manifest; the message says why."""


@dataclass(frozen=True)
class HeldFile:
    path: str
    size: int
    algorithm: str
    """Canonical where it is known here."""
    digest: str
    version: int
    """The version that brought the bytes."""
    key: str = ""
    """The service's own name of the bytes: the same for all files and versions that share them."""

    @property
    def sha512(self) -> str | None:
        return self.digest if self.algorithm == OF_RECORD else None


@dataclass(frozen=True)
class HeldVersion:
    number: int
    created: datetime
    files: dict[str, HeldFile]


@dataclass(frozen=True)
class HeldObject:
    ark: str
    versions: tuple[HeldVersion, ...]
    """In order; never empty."""

    @property
    def head(self) -> HeldVersion:
        return self.versions[-1]


def parse(data: bytes) -> HeldObject:
    if b"<!" in data.replace(b"<!--", b""):
        raise NotAManifest("it has a declaration, which is not read")
    try:
        root = ElementTree.fromstring(data)  # noqa: S314 - no declarations, hence no entities, get here
        found = next((each for each in root.iter() if _name(each) == "object"), None)
        versions = tuple(_version(each) for each in root.iter() if _name(each) == "version")
    except KeyError as error:
        raise NotAManifest(f"a version or a file in it has no {error}") from error
    except (ElementTree.ParseError, ValueError) as error:
        raise NotAManifest(f"it cannot be read: {error}") from error
    if found is None or not versions:
        raise NotAManifest("it names no object, or no version of it")
    return HeldObject(found.get("id", ""), tuple(sorted(versions, key=lambda each: each.number)))


def _version(element: Element) -> HeldVersion:
    manifest = next((each for each in element if _name(each) == "manifest"), None)
    if manifest is None:
        raise ValueError(f"version {element.get('id')} has no manifest")
    files = (_file(each) for each in manifest if _name(each) == "file")
    created = datetime.fromisoformat(manifest.attrib["created"])
    return HeldVersion(
        int(element.attrib["id"]),
        created if created.tzinfo else created.replace(tzinfo=UTC),
        {file.path: file for file in files},
    )


def _file(element: Element) -> HeldFile:
    field = {_name(each): (each.text or "").strip() for each in element}
    try:
        kind = algorithm(field["digestType"])
    except UnknownAlgorithm:
        kind = field["digestType"]
    # ark|version|path: where the bytes are; a name may have a bar in it, an ARK none
    key = field["key"]
    brought = int(key.partition("|")[2].partition("|")[0])
    return HeldFile(element.attrib["id"], int(field["size"]), kind, field["digest"].lower(), brought, key)


def _name(element: Element) -> str:
    """Without its namespace."""
    return str(element.tag).rpartition("}")[2]
