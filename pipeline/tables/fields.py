"""The fields of a table of objects or files, and the names that columns of a field have in four languages."""

import difflib
import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache

from pipeline.fixity import HEX_LENGTH
from pipeline.names import quote_name

FILE, URL, SIZE, MIME_TYPE, MODIFIED = "file", "url", "size", "mime_type", "modified"
DIGEST, ALGORITHM = "digest", "algorithm"
TITLE, CREATOR, DATE, LOCAL_ID, ARK = "title", "creator", "date", "local_id", "ark"

LABELS = {
    FILE: "File",
    URL: "URL",
    TITLE: "Title",
    CREATOR: "Author",
    DATE: "Date",
    LOCAL_ID: "Local identifier",
    ARK: "ARK",
    DIGEST: "Digest",
    ALGORITHM: "Algorithm",
    SIZE: "Size",
    MIME_TYPE: "MIME type",
    MODIFIED: "fileLastModified",
} | {name: name.upper().replace("_", "-") for name in HEX_LENGTH}
"""Field -> its name in documents and messages. A column of digests may be named after their algorithm."""

_NAMES = {
    FILE: "file filename name path filepath nfo:fileName datei dateiname pfad dateipfad "
    "fichier nomdefichier nomdufichier chemin archivo fichero nombredearchivo nombredelarchivo ruta",
    URL: "url uri link address location fileurl webadresse adresse lien adresseweb enlace direccion",
    SIZE: "size bytes filesize grosse groesse dateigrosse dateigroesse taille tailledufichier tamano",
    MIME_TYPE: "mimetype mime contenttype mediatype medientyp typemime tipomime",
    MODIFIED: "filelastmodified",
    DIGEST: "digest checksum hash hashvalue prufsumme pruefsumme sommedecontrole empreinte "
    "sumadecomprobacion sumadeverificacion",
    ALGORITHM: "algorithm hashalgorithm digestalgorithm checksumalgorithm checksumtype algorithmus "
    "algorithme algoritmo",
    TITLE: "title what titel bezeichnung titre intitule titulo",
    CREATOR: "creator author artist photographer who urheber urheberin verfasser verfasserin autor autorin "
    "kunstler kunstlerin kuenstler fotograf fotografin auteur autrice createur photographe autora creador "
    "fotografo",
    DATE: "date year when datum jahr datierung entstehungszeit laufzeit annee datation fecha ano",
    LOCAL_ID: "localid localidentifier id identifier callnumber shelfmark referencecode inventorynumber "
    "signatur inventarnummer archivsignatur identifikator cote identifiant numerodinventaire signatura "
    "identificador numerodeinventario",
    ARK: "ark primaryid primaryidentifier",
}
_SIMILAR = 0.8
"""Minimum similarity, from 0 to 1, at which a field is suggested for an unknown name."""


@lru_cache(maxsize=4096)
def plain(name: str) -> str:
    """Normalize a name: `nfo:fileUrl`, `File URL` and `file_url`, or `Größe` and `GROSSE:`, are the same."""
    base = name.strip().strip(":*").rpartition(":")[2]
    letters = unicodedata.normalize("NFKD", base.casefold())
    return re.sub(r"[\W_]", "", "".join(c for c in letters if not unicodedata.combining(c)))


_FIELDS = (
    {plain(name): field for field, names in _NAMES.items() for name in names.split()}
    | {plain(name): name for name in HEX_LENGTH}
    | {plain(label): field for field, label in LABELS.items()}
)


def field_of(name: str) -> str:
    """The field that has this name; empty if none has."""
    return _FIELDS.get(plain(name), "")


def fields_of(header: Sequence[str], named: Mapping[str, str]) -> tuple[str, ...]:
    """The field of each column, or empty. `named`: header -> name of a field, or empty for no field."""
    chosen = {plain(title): name for title, name in named.items()}
    return tuple(field_of(chosen.get(plain(title), title)) if title else "" for title in header)


def nearest(name: str) -> str:
    """The field that an unknown name probably means; empty if none is similar."""
    near = difflib.get_close_matches(plain(name), _FIELDS, 1, _SIMILAR)
    return _FIELDS[near[0]] if near else ""


def column_problems(
    header: Sequence[str], fields: Sequence[str], named: Mapping[str, str]
) -> tuple[str, ...]:
    """What is wrong with the mapping of columns to fields: sentences."""
    titles = set(map(plain, header))
    problems = [
        f"the table has no column {quote_name(title)}" for title in named if plain(title) not in titles
    ]
    problems += [
        f"{quote_name(name)}, given for the column {quote_name(title)}, is no field; fields: "
        + ", ".join(LABELS.values())
        for title, name in named.items()
        if name and not field_of(name)
    ]
    places: dict[str, int] = {}
    for column, field in enumerate(fields):
        one = DIGEST if field in HEX_LENGTH else field
        if field and (earlier := places.setdefault(one, column)) != column:
            problems.append(
                f"{quote_name(header[earlier])} and {quote_name(header[column])} are both the column "
                f"{LABELS[one]}: leave one of them out"
            )
    return tuple(problems)
