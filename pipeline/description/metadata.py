"""The files that describe an object, `system/mrt-*`, made of what the form, the profile and the depositor's
own files say.

Later wins, element by element: for an update what the object's latest version says, then the job's
configuration, `producer/mrt-dc.xml`, `producer/mrt-datacite.xml`, `producer/mrt-erc.txt`. The local ids of
all sources are kept, in this order. The files depend on nothing else, so that every attempt of a job that is
not stored yet writes the same bytes.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC
from pathlib import Path

from pipeline.description import anvl, datacite, dublin_core, local_ids
from pipeline.outcome import StepFailed, content, system
from pipeline.profiles.profile import Profile
from pipeline.records import Job, JobConfiguration
from pipeline.states import FailureKind

LIMIT = 1_000_000
"""Bytes of a depositor's metadata file that are read at most."""

LOCAL_IDS = 500
"""Local ids of one object at most: they are kept in a znode, which should have a few kilobytes."""

ERC = "mrt-erc.txt"
DUBLIN_CORE = "mrt-dc.xml"
DATACITE = "mrt-datacite.xml"

_AS_DUBLIN_CORE = {"who": "creator", "what": "title", "when": "date"}

Fields = dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Told:
    """What two files say: element -> values."""

    erc: Fields
    dublin_core: Fields


@dataclass(frozen=True)
class Before:
    """What an update keeps of the object unless its own job says otherwise."""

    said: Told
    local_id: tuple[str, ...]


NOTHING = Before(Told({}, {}), ())


@dataclass(frozen=True)
class Description:
    erc: anvl.Pairs
    """who, what, when, where (the ARK), then a where for each local id and other place."""
    dublin_core: Fields
    local_id: tuple[str, ...]
    files: dict[str, bytes]
    """Name below `system/` -> text."""


def told(producer: Path) -> Told:
    """The depositor's own files; StepFailed(content) if one is there but cannot be read."""
    said = _told("producer", lambda name: _read(producer / name))
    data = _read(producer / DATACITE)
    if data is None:
        return said
    return replace(said, dublin_core=said.dublin_core | datacite.parse(data, f"producer/{DATACITE}"))


def told_before(ark: str, read: Callable[[str], bytes | None]) -> Told:
    """The object's own description; `read` gives a file of its latest version by its path."""
    try:
        return _told("system", lambda name: read(f"system/{name}"))
    except StepFailed as failure:
        if failure.kind is not FailureKind.CONTENT:
            raise
        raise system(
            f"the latest version of {ark} has a description that cannot be used ({failure.message}): "
            "submit the whole object with mode add"
        ) from failure


def _told(folder: str, read: Callable[[str], bytes | None]) -> Told:
    erc, dc = read(ERC), read(DUBLIN_CORE)
    return Told(
        anvl.parse_erc(erc, f"{folder}/{ERC}") if erc is not None else {},
        dublin_core.parse(dc, f"{folder}/{DUBLIN_CORE}") if dc is not None else {},
    )


def all_local_ids(given: tuple[str, ...], said: Told) -> tuple[str, ...]:
    """The form's local ids, then those in the `where` lines of the depositor's ERC; ARKs are none."""
    places = (local_ids.parse(where) for where in said.erc.get("where", ()))
    found = local_ids.merge(given, (each for some in places for each in some if not _is_ark(each)))
    if len(found) > LOCAL_IDS:
        raise content(f"the object has {len(found)} local ids; at most {LOCAL_IDS} are kept: give fewer")
    return found


def describe(job: Job, profile: Profile, ark: str, producer: Path, before: Before = NOTHING) -> Description:
    said = told(producer)
    ids = local_ids.merge(before.local_id, all_local_ids(job.identifiers.local_id, said))
    kept = _others(before.said, {ark, *ids})
    erc = _erc(job.configuration, said, kept, ark, ids)
    shown = () if profile.suppress_dublin_core_local_id else ids
    dc = _dublin_core(job.configuration, said, kept, ark, shown)
    files = {
        ERC: anvl.write_erc(erc),
        DUBLIN_CORE: dublin_core.write(dc),
        "mrt-ingest.txt": anvl.write(_ingest(job, profile, ark, erc, ids), gap="\t"),
        "mrt-owner.txt": profile.owner.encode(),
        "mrt-membership.txt": "".join(f"{collection}\n" for collection in profile.collections).encode(),
        "mrt-mom.txt": anvl.write(
            (
                ("primaryIdentifier", ark),
                ("type", profile.object_type),
                ("role", profile.object_role),
                ("aggregate", profile.aggregate_role),
                ("localIdentifier", local_ids.write(ids)),
            )
        ),
    }
    return Description(erc, dc, ids, files)


def _read(path: Path) -> bytes | None:
    try:
        with path.open("rb") as stream:
            data = stream.read(LIMIT + 1)
    except FileNotFoundError:
        return None
    if len(data) > LIMIT:
        raise content(
            f"producer/{path.name} has more than {LIMIT:,} bytes, too many for a description: shorten it"
        )
    return data


def _is_ark(text: str) -> bool:
    return text.lower().startswith("ark:")


def _others(told: Told, ours: set[str]) -> Told:
    """Without the identifiers that are written anew."""
    return Told(
        told.erc | {"where": tuple(each for each in told.erc.get("where", ()) if each not in ours)},
        told.dublin_core
        | {"identifier": tuple(each for each in told.dublin_core.get("identifier", ()) if each not in ours)},
    )


def _erc(
    configuration: JobConfiguration, said: Told, before: Told, ark: str, ids: tuple[str, ...]
) -> anvl.Pairs:
    form = {"who": configuration.erc_who, "what": configuration.erc_what, "when": configuration.erc_when}
    pairs: list[tuple[str, str]] = []
    for element, name in _AS_DUBLIN_CORE.items():
        values = (
            said.erc.get(element)
            or said.dublin_core.get(name)
            or _some(form[element])
            or configuration.dublin_core.get(name)
            or before.erc.get(element)
            or before.dublin_core.get(name)
            or (anvl.UNKNOWN,)
        )
        pairs += ((element, value) for value in values)
    elsewhere = (*_some(configuration.erc_where), *filter(_is_ark, said.erc.get("where", ())))
    places = local_ids.merge((ark,), ids, elsewhere or before.erc["where"])
    return (*pairs, *(("where", place) for place in places))


def _dublin_core(
    configuration: JobConfiguration, said: Told, before: Told, ark: str, ids: tuple[str, ...]
) -> Fields:
    form = {
        "creator": _some(configuration.erc_who),
        "title": _some(configuration.erc_what),
        "date": _some(configuration.erc_when),
    }
    cited = {name: said.erc.get(element, ()) for element, name in _AS_DUBLIN_CORE.items()}
    fields: Fields = {}
    for name in dublin_core.ELEMENTS:
        values = (
            cited.get(name)
            or said.dublin_core.get(name)
            or configuration.dublin_core.get(name)
            or form.get(name)
            or before.dublin_core.get(name)
        )
        if values:
            fields[name] = values
    return fields | {"identifier": local_ids.merge((ark,), ids, fields.get("identifier", ()))}


def _ingest(
    job: Job, profile: Profile, ark: str, erc: anvl.Pairs, ids: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    given = job.configuration
    first = dict(reversed(erc))
    return (
        ("ingest", "arkline"),
        ("submissionDate", given.submitted_at.astimezone(UTC).isoformat(timespec="seconds")),
        ("batch", job.bid),
        ("job", job.jid),
        ("userAgent", given.submitter),
        ("file", given.payload_name),
        ("type", given.submission_type.label),
        ("profile", profile.name),
        ("collection", "; ".join(profile.collections)),
        ("notification", "; ".join(given.notification)),
        ("primaryIdentifier", ark),
        ("digestType", given.digest.algorithm if given.digest else ""),
        ("digestValue", given.digest.value if given.digest else ""),
        ("creator", first["who"]),
        ("title", first["what"]),
        ("date", first["when"]),
        ("localIdentifier", local_ids.write(ids)),
        ("note", given.note),
    )


def _some(value: str) -> tuple[str, ...]:
    return (value.strip(),) if value.strip() else ()
