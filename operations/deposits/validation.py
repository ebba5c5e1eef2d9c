"""Check profiles and manifests before a submission."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from operations.deposits.dry_run_result import DryRunResult
from operations.deposits.local_deposit import LocalDeposit
from operations.deposits.planned import NEW_VERSION
from operations.deposits.submission import check_url
from pipeline.errors import UsageRefused
from pipeline.manifests import checkm
from pipeline.manifests.checkm import ManifestProfile, Severity
from pipeline.notify.callback import MIN_SECRET_BYTES, SUFFIX
from pipeline.profiles import profile
from pipeline.profiles.profile import ProfileError, Profiles
from pipeline.records import Record
from pipeline.settings import Settings
from pipeline.sources.fetch import HttpFetcher
from pipeline.working_storage.capacity import in_units


@dataclass(frozen=True)
class ManifestBytes:
    """A manifest that the caller has read; `name` is shown in messages."""

    name: str
    data: bytes


class Finding(Record):
    """A problem at a line; line 0 means the whole file."""

    line: int
    message: str


class CheckResult(Record):
    """The problems of a profile or a manifest."""

    name: str
    kind: str = ""
    rows: int | None = None
    errors: tuple[Finding, ...] = ()
    warnings: tuple[Finding, ...] = ()

    @property
    def good(self) -> bool:
        return not self.errors


def check_result(name: str, problems: tuple[checkm.Problem, ...], kind: str, rows: int | None) -> CheckResult:
    def of(severity: Severity) -> tuple[Finding, ...]:
        return tuple(Finding(line=p.line, message=p.message) for p in problems if p.severity is severity)

    return CheckResult(
        name=name, kind=kind, rows=rows, errors=of(Severity.ERROR), warnings=of(Severity.WARNING)
    )


def check_profiles(profiles: Profiles, name: str | None = None) -> tuple[CheckResult, ...]:
    """Check the profile of this name or, without one, all profiles in the folder."""
    if name is not None:
        return (check_profile_file(profiles.file(name)),)
    results = tuple(_check_named(profiles, name) for name in profiles.names())
    if not results:
        raise UsageRefused(f"there is no profile in {profiles.folder}: write one, or set ARKLINE_PROFILES")
    return results + tuple(_unread(path) for path in profiles.unread())


def _check_named(profiles: Profiles, name: str) -> CheckResult:
    try:
        path = profiles.file(name)
    except ProfileError as error:
        return _refused(name, error)
    return check_profile_file(path)


def _unread(path: Path) -> CheckResult:
    message = "is not read: a profile's file is NAME.yaml, or NAME.txt in Merritt's form"
    return CheckResult(name=path.name, kind="not a profile", warnings=(Finding(line=0, message=message),))


def check_profile_file(path: Path) -> CheckResult:
    """Check a profile in a file on this machine, and the callback secret beside it."""
    try:
        parsed, ignored = profile.read_profile(path)
        warnings = (*ignored, *_secret_warnings(path.parent / f"{parsed.name}{SUFFIX}"))
    except ProfileError as error:
        return _refused(path.name, error)
    return CheckResult(name=path.name, kind="profile", warnings=_whole_file(warnings))


def _secret_warnings(path: Path) -> Iterator[str]:
    """Warnings about the callback secret; ProfileError if it cannot be used."""
    try:
        secret, mode = path.read_bytes().strip(), path.stat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise ProfileError(f"the callback's secret {path.name} cannot be read: {error.strerror}") from error
    if len(secret) < MIN_SECRET_BYTES:
        raise ProfileError(f"the callback's secret {path.name} is shorter than {MIN_SECRET_BYTES} bytes")
    if mode & 0o007:
        yield f"every user of this machine can read the callback's secret {path.name}: chmod o= {path.name}"


def _refused(name: str, error: ProfileError) -> CheckResult:
    return CheckResult(name=name, kind="profile", errors=_whole_file(error.faults))


def _whole_file(messages: Iterable[str]) -> tuple[Finding, ...]:
    return tuple(Finding(line=0, message=message) for message in messages)


def check_manifest(
    settings: Settings,
    manifest: ManifestBytes,
    expected: ManifestProfile | None = None,
    case_fold: bool = True,
) -> CheckResult:
    """Check a manifest for errors and doubtful entries; opens no file on this machine."""
    name, data = manifest.name, manifest.data
    check_manifest_size(settings, len(data), name)
    max_files = settings.object_files if expected in (None, ManifestProfile.OBJECT) else None
    problems = checkm.check(data, expected, case_fold, max_files)
    if any(problem.severity is Severity.ERROR for problem in problems):
        return check_result(name, problems, "manifest", None)
    parsed = checkm.parse(data, name, expected, case_fold)
    return check_result(name, problems, parsed.profile.submission_type.label, len(parsed.rows))


def planned_deposit(manifest: ManifestBytes, expected: ManifestProfile | None) -> LocalDeposit:
    """The deposit of a manifest without errors, for the judge: nothing of it is on this machine."""
    parsed = checkm.parse(manifest.data, manifest.name, expected, case_fold=False)
    kind = parsed.profile.submission_type
    objects = 1 if parsed.profile is ManifestProfile.OBJECT else len(parsed.rows)
    return LocalDeposit(Path(manifest.name), kind, objects, (), parsed.rows)


def with_judgement(result: CheckResult, deposit: LocalDeposit, judged: DryRunResult) -> CheckResult:
    """The result with what the collection would refuse; a missing consent to a version is a warning."""
    lines = [row.line for row in deposit.rows] if deposit.type.is_batch else [0]
    of_objects = [(lines[one.number - 1], problem) for one in judged.objects for problem in one.errors]
    errors = [
        *(Finding(line=0, message=trouble.message) for trouble in judged.failures if not trouble.number),
        *(Finding(line=line, message=one.message) for line, one in of_objects if one.field != NEW_VERSION),
    ]
    warnings = (
        Finding(line=line, message=one.message) for line, one in of_objects if one.field == NEW_VERSION
    )
    return result.model_copy(
        update={"errors": (*result.errors, *errors), "warnings": (*result.warnings, *warnings)}
    )


def fetch_manifest(settings: Settings, url: str) -> ManifestBytes:
    """The manifest as a worker would fetch it, with the same restrictions on addresses."""
    check_url(url)
    with HttpFetcher(settings) as fetcher:
        return ManifestBytes(url, fetcher.read(url, settings.manifest_limit))


def check_manifest_size(settings: Settings, size: int, name: str) -> None:
    limit = settings.manifest_limit
    if size > limit:
        raise UsageRefused(
            f"{name} is larger than {in_units(limit)}, the limit of manifests: divide it, or raise "
            "ARKLINE_MANIFEST_LIMIT"
        )
