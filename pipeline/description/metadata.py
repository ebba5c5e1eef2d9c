"""The files that describe an object, `system/mrt-*`: from submission, profile and the depositor's files.

Precedence per element, from low to high: for an update the object's latest version; the job's configuration;
`producer/mrt-dc.xml`; `producer/mrt-datacite.xml`; `producer/mrt-erc.txt`. The local ids of all sources are
kept, in this order. The files depend on nothing else, so all attempts of a job that is not yet stored write
the same bytes.

A depositor's embargo, `mrt-embargo.txt` (`embargoEndDate:` and a date, or `none`), is of the whole object:
until it ends, files of the object are given to operators alone. The inventory keeps its end.
"""

import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from pipeline import causes, names
from pipeline.description import anvl, xml
from pipeline.outcome import ObjectDescription, StepFailed, content, system
from pipeline.profiles.profile import Profile
from pipeline.records import Identifiers, Job, JobConfiguration
from pipeline.states import FailureKind

MAX_FILE_BYTES = 1_000_000
"""Maximum size of a depositor's metadata file."""

MAX_CHARACTERS = 2_000_000
"""Maximum characters of all elements of an object together."""

MAX_LOCAL_IDS = 500
"""Maximum local ids of one object: they are in a znode, which should stay at a few kilobytes."""

ERC = "mrt-erc.txt"
DUBLIN_CORE = "mrt-dc.xml"
DATACITE = "mrt-datacite.xml"
INGEST = "mrt-ingest.txt"
OWNER = "mrt-owner.txt"
MEMBERSHIP = "mrt-membership.txt"
MOM = "mrt-mom.txt"

_AS_DUBLIN_CORE = {"who": "creator", "what": "title", "when": "date"}

Fields = dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Elements:
    """Descriptive elements as read from files: element -> values."""

    erc: Fields
    dublin_core: Fields


@dataclass(frozen=True)
class Previous:
    """The description that an update keeps, except for elements that the update's job gives."""

    elements: Elements
    local_id: tuple[str, ...]


NO_ELEMENTS = Elements({}, {})
NO_PREVIOUS = Previous(NO_ELEMENTS, ())


@dataclass(frozen=True)
class Description:
    erc: anvl.Pairs
    """who, what, when, where (the ARK), then a where for every local id and other location."""
    dublin_core: Fields
    local_id: tuple[str, ...]
    files: dict[str, bytes]
    """Name below `system/` -> text."""


def read_elements(producer: Path) -> Elements:
    """The elements in the depositor's files; StepFailed(content) if a file cannot be parsed."""
    elements = _read_elements("producer", lambda name: read_file(producer / name))
    data = read_file(producer / DATACITE)
    if data is not None:
        given = xml.parse_datacite(data, f"producer/{DATACITE}")
        elements = replace(elements, dublin_core=elements.dublin_core | given)
    values = (
        value
        for fields in (elements.erc, elements.dublin_core)
        for group in fields.values()
        for value in group
    )
    if sum(map(len, values)) > MAX_CHARACTERS:
        # an element within an element counts for both
        raise content(
            f"the description of the object has more than {MAX_CHARACTERS:,} characters: shorten "
            f"producer/{ERC}, producer/{DUBLIN_CORE} or producer/{DATACITE}"
        )
    return elements


def read_previous_elements(ark: str, read: Callable[[str], bytes | None]) -> Elements:
    """The elements in the object's latest version; `read` returns a file of that version by its path."""
    try:
        return _read_elements("system", lambda name: read(f"system/{name}"))
    except StepFailed as failure:
        if failure.kind is not FailureKind.CONTENT:
            raise
        raise system(
            f"the latest version of {ark} has an invalid description ({failure.message}): "
            "submit the whole object with mode add"
        ) from failure


def _read_elements(folder: str, read: Callable[[str], bytes | None]) -> Elements:
    erc, dc = read(ERC), read(DUBLIN_CORE)
    return Elements(
        anvl.parse_erc(erc, f"{folder}/{ERC}") if erc is not None else {},
        xml.parse_dublin_core(dc, f"{folder}/{DUBLIN_CORE}") if dc is not None else {},
    )


def all_local_ids(given: tuple[str, ...], elements: Elements) -> tuple[str, ...]:
    """The local ids of the submission, then those in the `where` lines of the depositor's ERC; no ARKs."""
    places = (names.parse_local_ids(where) for where in elements.erc.get("where", ()))
    merged = names.merge_local_ids(
        given, (place for group in places for place in group if not _is_ark(place))
    )
    check_local_ids(merged)
    return merged


def check_local_ids(local_id: tuple[str, ...]) -> None:
    """StepFailed(content) if there are too many local ids, or one that the inventory cannot have.

    Checked before an ARK is minted for the object.
    """
    if len(local_id) > MAX_LOCAL_IDS:
        raise content(
            f"the object has {len(local_id)} local ids; at most {MAX_LOCAL_IDS} are allowed: give fewer"
        )
    if problem := next(filter(None, map(_local_id_problem, local_id)), None):
        raise content(problem).because(causes.IDENTIFIER_INVALID())


def _local_id_problem(name: str) -> str | None:
    """As `names.local_id_problem`, and stricter: stored objects may have ids that earlier releases took.

    The lists and the description of the object would have such an id otherwise.
    """
    if problem := names.local_id_problem(name):
        return problem
    if control := next((c for c in name if unicodedata.category(c) == "Cc"), None):
        quoted = names.quote_name(name)
        return f"the local id {quoted} has the control character U+{ord(control):04X} in it: give it without"
    if names.parse_local_ids(names.write_local_ids((name,))) == (name,):
        return None
    return (
        f"the local id '{name}' begins or ends with a blank, or contains '%sc', which stands for a semicolon "
        "in lists of local ids: give it without"
    )


def describe(
    job: Job, profile: Profile, ark: str, elements: Elements, previous: Previous = NO_PREVIOUS
) -> Description:
    """Describe the job's object; `elements` are those in the depositor's files."""
    ids = names.merge_local_ids(previous.local_id, all_local_ids(job.identifiers.local_id, elements))
    earlier = _without_identifiers(previous.elements, {ark, *ids})
    erc = _erc(job.configuration, elements, earlier, ark, ids)
    dc_ids = () if profile.suppress_dublin_core_local_id else ids
    dc = _dublin_core(job.configuration, elements, earlier, ark, dc_ids)
    files = {
        ERC: anvl.write_erc(erc),
        DUBLIN_CORE: xml.write_dublin_core(dc),
        INGEST: anvl.write(_ingest(job, profile, ark, erc, ids), gap="\t"),
        OWNER: profile.owner.encode(),
        MEMBERSHIP: "".join(f"{collection}\n" for collection in profile.collections).encode(),
        MOM: anvl.write(
            (
                ("primaryIdentifier", ark),
                ("type", profile.object_type),
                ("role", profile.object_role),
                ("aggregate", profile.aggregate_role),
                ("localIdentifier", names.write_local_ids(ids)),
            )
        ),
    }
    return Description(erc, dc, ids, files)


def read_file(path: Path) -> bytes | None:
    """Read a descriptive file of the deposit; None if missing, StepFailed(content) if too large."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return None
    if len(data) > MAX_FILE_BYTES:
        raise content(
            f"producer/{path.name} is larger than {MAX_FILE_BYTES:,} bytes, the limit for a "
            "description: shorten the file"
        )
    return data


def _is_ark(text: str) -> bool:
    return text.lower().startswith("ark:")


def _without_identifiers(elements: Elements, ours: set[str]) -> Elements:
    """The elements without the identifiers that the new description adds itself."""

    def others(values: Iterable[str]) -> tuple[str, ...]:
        return tuple(value for value in values if value not in ours)

    return Elements(
        elements.erc | {"where": others(elements.erc.get("where", ()))},
        elements.dublin_core | {"identifier": others(elements.dublin_core.get("identifier", ()))},
    )


def _erc(
    configuration: JobConfiguration, given: Elements, earlier: Elements, ark: str, ids: tuple[str, ...]
) -> anvl.Pairs:
    form = {"who": configuration.erc_who, "what": configuration.erc_what, "when": configuration.erc_when}
    pairs: list[tuple[str, str]] = []
    for element, name in _AS_DUBLIN_CORE.items():
        values = (
            given.erc.get(element)
            or given.dublin_core.get(name)
            or _optional(form[element])
            or configuration.dublin_core.get(name)
            or earlier.erc.get(element)
            or earlier.dublin_core.get(name)
            or (anvl.UNKNOWN,)
        )
        pairs += ((element, value) for value in values)
    elsewhere = (*_optional(configuration.erc_where), *filter(_is_ark, given.erc.get("where", ())))
    places = names.merge_local_ids((ark,), ids, elsewhere or earlier.erc["where"])
    return (*pairs, *(("where", place) for place in places))


def _dublin_core(
    configuration: JobConfiguration, given: Elements, earlier: Elements, ark: str, ids: tuple[str, ...]
) -> Fields:
    form = {
        "creator": _optional(configuration.erc_who),
        "title": _optional(configuration.erc_what),
        "date": _optional(configuration.erc_when),
    }
    cited = {name: given.erc.get(element, ()) for element, name in _AS_DUBLIN_CORE.items()}
    fields: Fields = {}
    for name in xml.ELEMENTS:
        values = (
            cited.get(name)
            or given.dublin_core.get(name)
            or configuration.dublin_core.get(name)
            or form.get(name)
            or earlier.dublin_core.get(name)
        )
        if values:
            fields[name] = values
    return fields | {"identifier": names.merge_local_ids((ark,), ids, fields.get("identifier", ()))}


def _ingest(
    job: Job, profile: Profile, ark: str, erc: anvl.Pairs, ids: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    submission = job.configuration
    first = dict(reversed(erc))
    return (
        ("ingest", "arkline"),
        ("submissionDate", submission.submitted_at.astimezone(UTC).isoformat(timespec="seconds")),
        ("batch", job.bid),
        ("job", job.jid),
        *((("jobKey", submission.key),) if submission.key else ()),
        ("userAgent", submission.submitter),
        ("file", submission.payload_name),
        ("type", submission.submission_type.label),
        ("profile", profile.name),
        ("collection", "; ".join(profile.collections)),
        ("notification", "; ".join(submission.notification)),
        ("primaryIdentifier", ark),
        ("digestType", submission.digest.algorithm if submission.digest else ""),
        ("digestValue", submission.digest.value if submission.digest else ""),
        ("creator", first["who"]),
        ("title", first["what"]),
        ("date", first["when"]),
        ("localIdentifier", names.write_local_ids(ids)),
        ("note", submission.note),
    )


def _optional(value: str) -> tuple[str, ...]:
    return (value.strip(),) if value.strip() else ()


ELEMENT_LIMIT = 1_000
"""Maximum characters of one element in a znode; storage and inventory have the whole element."""


def as_stored(erc: anvl.Pairs) -> ObjectDescription:
    """The description that the record keeps of an ERC without unknown elements; repeated ones are joined."""
    elements = {element: "; ".join(value for name, value in erc if name == element) for element, _ in erc}
    return ObjectDescription(**{element: _cut(text) for element, text in elements.items()})


def final_description(configuration: JobConfiguration, identifiers: Identifiers) -> ObjectDescription:
    if identifiers.description is not None:
        return identifiers.description
    return ObjectDescription(
        who=configuration.erc_who,
        what=configuration.erc_what,
        when=configuration.erc_when,
        where=configuration.erc_where,
    )


def _cut(text: str) -> str:
    return text if len(text) <= ELEMENT_LIMIT else f"{text[: ELEMENT_LIMIT - 3]}..."


EMBARGO = "mrt-embargo.txt"
_FIELD = "embargoEndDate"


def check_embargo(data: bytes) -> str:
    """A sentence with the embargo; StepFailed(content) if the file is invalid."""
    text, end = _embargo(data)
    return f"producer/{EMBARGO}: " + (f"embargo until {text}" if end else "no embargo")


def embargo_end(data: bytes) -> datetime | None:
    """When the embargo ends: a date without a time at its beginning, without a zone in UTC; None for `none`.

    StepFailed(content) if the file is invalid.
    """
    _, end = _embargo(data)
    return end


def _embargo(data: bytes) -> tuple[str, datetime | None]:
    source = f"producer/{EMBARGO}"
    ends = [value for name, value in anvl.parse(data, source) if name.lower() == _FIELD.lower()]
    if len(ends) != 1:
        raise content(f"{source} must have one line '{_FIELD}: 2030-01-31', or '{_FIELD}: none'")
    (text,) = ends
    if text.lower() == "none":
        return text, None
    try:
        end = datetime.fromisoformat(text)
        return text, (end if end.tzinfo else end.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise content(
            f"{source}: '{text[:100]}' is not an ISO 8601 date such as 2030-01-31 or "
            "2030-01-31T12:00:00Z, nor 'none'"
        ) from error
