"""The judgement of a planned deposit: what each object would become, and why it would be refused.

Rule: there is one judge. A dry run by URL, a dry run of local files, the check of a manifest and the preview
of a draft differ in how they obtain the objects and in what they know of them. Limits, identifiers and
consent are judged by the functions that a job's steps call, so that a job is refused in the same words.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath

from operations.deposits.planned import (
    NEW_VERSION,
    Contradiction,
    FieldProblem,
    JudgedObject,
    Judgement,
    NamedObject,
    ObjectFile,
)
from operations.deposits.submission import check_said
from operations.site import Site
from pipeline.description import metadata
from pipeline.errors import UsageRefused
from pipeline.humanize import counted
from pipeline.identifiers import minter
from pipeline.inventory.recording import Placement
from pipeline.manifests.checkm import repeated_identifiers, too_many_rows
from pipeline.names import (
    PRODUCER,
    NotAnArk,
    UnsafeName,
    duplicates,
    is_local,
    quote_name,
    safe_name,
    spellings,
)
from pipeline.outcome import StepFailed
from pipeline.profiles.profile import Profile
from pipeline.records import Submission, SubmissionMode, SubmissionType
from pipeline.settings import Settings
from pipeline.steps.estimate import CONTAINER_FACTOR
from pipeline.steps.expected_files import check_bytes, check_files
from pipeline.storage.base import nothing_to_reset
from pipeline.working_storage.capacity import Usage, never_fits, usage_now

_OF_CONTAINERS = (SubmissionType.CONTAINER, SubmissionType.CONTAINER_BATCH_MANIFEST)


@dataclass(frozen=True)
class _Known:
    """What the site knows beside the objects."""

    submission: Submission
    profile: Profile
    settings: Settings
    space: Usage | None
    """Working storage; None if this machine cannot measure it."""
    arks: dict[str, str]
    """Local id -> ARK, for the owner's local ids that have one."""
    placements: dict[str, Placement]
    of_others: frozenset[str]
    """ARKs of objects that have a version of another depositor."""
    may_be_stored: Callable[[str], bool]
    """Whether storage has an object with the ARK, perhaps one that the inventory does not have yet."""


def judge(
    site: Site,
    profile: Profile,
    submission: Submission,
    objects: Sequence[NamedObject],
    *,
    total: int | None = None,
    called: str = "objects",
) -> Judgement:
    """Judge the objects of a deposit, of which nothing is changed; `profile`: within the limits of the site.

    `total`: the number of all objects, if these are a part. `called`: what their numbers count, in messages.
    """
    known = _look_up(site, profile, submission, objects)
    places: dict[tuple[str, str], int] = {}
    judged = tuple(
        _judged(one, known, repeated_identifiers(one.local_id, one.primary_id, one.number, places, called))
        for one in objects
    )
    given = {one.primary_id: after.version_of for one, after in zip(objects, judged, strict=True)}
    warnings = (*_repeated(objects), *_taken_from_sight(judged, known))
    return Judgement(
        objects=judged,
        errors=tuple(_problems_of_all(len(objects) if total is None else total, known)),
        warnings=tuple(FieldProblem(message=message, field="file") for message in warnings),
        known=known.arks | {name: ark for name, ark in given.items() if name and ark},
        contradictions=tuple(_contradictions(objects, known)),
    )


def _judged(one: NamedObject, known: _Known, repeats: Iterator[str]) -> JudgedObject:
    ark, refused = _identified(one, known)
    placement = known.placements.get(ark) if ark else None
    if ark and placement and (problem := _consent_problem(one, ark, placement, known)):
        refused = FieldProblem(message=problem, field=NEW_VERSION)
    problems = (
        *(FieldProblem(message=message, field="local_id") for message in repeats),
        *((refused,) if refused else ()),
        *_problems_of_files(one, known),
    )
    return JudgedObject(
        **one.model_dump(include={"number", "name", "title", "creator", "date", "local_id"}),
        files=one.file_count,
        bytes=one.bytes if one.is_sized else None,
        version_of=ark if placement else None,
        version=placement.version + 1 if placement else None,
        errors=problems,
    )


def _look_up(site: Site, profile: Profile, submission: Submission, objects: Sequence[NamedObject]) -> _Known:
    settings = site.settings
    local_ids = list(dict.fromkeys(name for one in objects for name in one.local_id))
    given = {ark for one in objects if one.primary_id for ark in _spellings(one.primary_id)}
    inventory = site.archive() if local_ids or given else None
    arks = inventory.arks_of(profile.owner, local_ids) if inventory else {}
    placements = inventory.placements_of([*given, *arks.values()]) if inventory else {}
    of_others = inventory.not_of(submission.owner, placements) if inventory else frozenset()
    space = usage_now(settings) if settings.working.is_dir() else None
    may_be_stored = partial(_may_be_stored, site, profile)
    return _Known(submission, profile, settings, space, arks, placements, of_others, may_be_stored)


def _may_be_stored(site: Site, profile: Profile, ark: str) -> bool:
    try:
        return site.storage().has_object(ark, profile.storage_node)
    except StepFailed:
        return True  # not known: left to the job


def _spellings(given: str) -> tuple[str, ...]:
    try:
        return spellings(given)
    except NotAnArk:
        return ()  # `minter.named_ark` refuses it


def _identified(one: NamedObject, known: _Known) -> tuple[str | None, FieldProblem | None]:
    """The ARK that the object names and may have, or why it may not have it; neither if it names none."""
    named = {name: known.arks[name] for name in one.local_id if name in known.arks}
    field = "ark" if one.primary_id else "local_id"
    try:
        metadata.check_local_ids(one.local_id)
        ark = minter.named_ark(one.primary_id or None, named, known.placements.__contains__)
        if ark is None and not _may_name_itself(one, known):
            minter.check_reset(known.submission, known.profile, one.local_id)
    except StepFailed as failure:
        return None, FieldProblem(message=failure.message, field=field)
    if ark is None:
        return None, None
    placement = known.placements.get(ark)
    problem = minter.ownership_problem(ark, known.profile, placement, given=bool(one.primary_id))
    is_reset = known.submission.submission_mode is SubmissionMode.RESET
    if not problem and is_reset and placement is None and not known.may_be_stored(ark):
        problem = nothing_to_reset(ark)
    return (None, FieldProblem(message=problem, field=field)) if problem else (ark, None)


def _may_name_itself(one: NamedObject, known: _Known) -> bool:
    """Whether a file of the object, perhaps one that is not known yet, may give further local ids."""
    if one.files is None or one.more_files or known.submission.type in _OF_CONTAINERS:
        return True
    return any(PurePosixPath(file.name).name == metadata.ERC for file in one.files)


def _consent_problem(one: NamedObject, ark: str, placement: Placement, known: _Known) -> str | None:
    if minter.may_add_version(known.submission, known.profile):
        return None
    agreed = known.submission.new_version_of.get(ark)
    naming = () if one.primary_id else tuple(name for name in one.local_id if known.arks.get(name) == ark)
    return minter.consent_problem(ark, known.profile, placement, placement.version, agreed, naming)


def _problems_of_files(one: NamedObject, known: _Known) -> Iterator[FieldProblem]:
    for check, count in ((check_files, one.file_count), (check_bytes, one.bytes)):
        try:
            check(known.profile, count or 0)
        except StepFailed as failure:
            yield FieldProblem(message=failure.message, field="file")
    factor = CONTAINER_FACTOR if known.submission.type in _OF_CONTAINERS else 1
    if known.space and (problem := never_fits(one.bytes * factor, known.settings, known.space)):
        yield FieldProblem(message=problem, field="file")
    is_object = known.submission.type is SubmissionType.OBJECT_MANIFEST
    if is_object and (one.file_count or 0) > known.settings.object_files:
        yield FieldProblem(message=too_many_rows(known.settings.object_files), field="file")
    if is_object:
        names = (file.name for file in one.files or ())
        clashes = duplicates(names, case_fold=not known.profile.case_sensitive_names)
        yield from (FieldProblem(message=clash.reason, field="file") for clash in clashes)
    for file in one.files or ():
        try:
            safe_name(file.name, PRODUCER)
        except UnsafeName as unsafe:
            yield FieldProblem(message=str(unsafe), field="file")
        yield from upload_problems(file, known.settings)
        yield from file.differences()


def upload_problems(file: ObjectFile, settings: Settings) -> Iterator[FieldProblem]:
    """Why the file cannot be uploaded, if it has yet to be."""
    size, limit = file.bytes or 0, settings.upload_bytes
    if file.to_upload and size > limit:
        message = f"{quote_name(file.name)}: {size:,} bytes are more than {limit:,} (ARKLINE_UPLOAD_BYTES)"
        yield FieldProblem(message=message, field="file")


def _problems_of_all(total: int, known: _Known) -> Iterator[FieldProblem]:
    most = known.profile.limits.batch_jobs
    if known.submission.type.is_batch and most is not None and total > most:
        yield FieldProblem(message=too_many_rows(most))
    try:
        check_said(known.profile, known.submission)
    except UsageRefused as refused:
        yield FieldProblem(message=str(refused))


def _contradictions(objects: Sequence[NamedObject], known: _Known) -> Iterator[Contradiction]:
    for one in objects:
        arks = {known.arks[name] for name in one.local_id if name in known.arks}
        arks.update(_spellings(one.primary_id or "")[:1])
        if len(arks) > 1:
            yield Contradiction(number=one.number, name=one.name, arks=tuple(sorted(arks)))


def _repeated(objects: Sequence[NamedObject]) -> Iterator[str]:
    """Values that several objects share, possibly by mistake."""
    payloads = Counter(one.payload for one in objects if one.payload)
    for payload, times in payloads.items():
        if times > 1:
            what = "file" if is_local(payload) else "URL"
            yield f"{times:,} objects have the {what} {quote_name(payload)}: every entry makes an object"
    alone = (one.files[0].digest for one in objects if one.files and len(one.files) == 1)
    for digest, times in Counter(map(str, filter(None, alone))).items():
        if times > 1:
            yield f"{times:,} objects have the digest '{digest}': the same bytes are deposited more than once"


def _taken_from_sight(judged: Sequence[JudgedObject], known: _Known) -> Iterator[str]:
    """What a deposit does to those who have deposited its objects: each sees only what is all her own."""
    arks = list(dict.fromkeys(one.version_of for one in judged if one.version_of in known.of_others))
    if arks:
        others = f" and {counted(len(arks) - 1, 'other object')}" if arks[1:] else ""
        yield (
            f"{arks[0]}{others} {'have' if others else 'has'} a version of another depositor: once you add "
            "one, no depositor finds it any more, not even you; viewers and staff of the collection do"
        )
