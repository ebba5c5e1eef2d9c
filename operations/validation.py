"""Profiles and manifests, judged before anything is submitted."""

from collections.abc import Iterator
from pathlib import Path

from operations.submission import check_url
from pipeline.errors import UsageRefused
from pipeline.manifests import checkm
from pipeline.manifests.checkm import ManifestProfile, Severity
from pipeline.notify.signature import MIN_SECRET_BYTES, SUFFIX
from pipeline.profiles import profile
from pipeline.profiles.profile import ProfileError, Profiles
from pipeline.records import Record
from pipeline.settings import Settings
from pipeline.sources.fetch import HttpFetcher
from pipeline.working_storage.capacity import in_units


class Told(Record):
    """A problem, at its line; line 0 is the whole."""

    line: int
    message: str


class Checked(Record):
    """A profile's or a manifest's problems."""

    name: str
    kind: str = ""
    rows: int | None = None
    errors: tuple[Told, ...] = ()
    warnings: tuple[Told, ...] = ()

    @property
    def good(self) -> bool:
        return not self.errors


def sorted_out(name: str, problems: tuple[checkm.Problem, ...], kind: str, rows: int | None) -> Checked:
    told = {
        severity: tuple(Told(line=p.line, message=p.message) for p in problems if p.severity is severity)
        for severity in Severity
    }
    return Checked(
        name=name, kind=kind, rows=rows, errors=told[Severity.ERROR], warnings=told[Severity.WARNING]
    )


def check_profiles(profiles: Profiles, which: str | None = None) -> tuple[Checked, ...]:
    """One profile, by its name or its file, or all in the folder."""
    if which is not None:
        if "/" in which or which.endswith((".yaml", ".txt")):
            return (_profile_in(Path(which)),)
        return (_profile_of(profiles, profiles.file(which).name, which),)
    found = tuple(_profile_of(profiles, name, name) for name in profiles.names())
    if not found:
        raise UsageRefused(f"there is no profile in {profiles.folder}: write one, or set ARKLINE_PROFILES")
    return found + tuple(
        Checked(
            name=path.name,
            kind="not a profile",
            warnings=(
                Told(
                    line=0,
                    message="is not read: a profile's file is NAME.yaml, or NAME.txt in Merritt's form",
                ),
            ),
        )
        for path in profiles.unread()
    )


def _profile_of(profiles: Profiles, shown: str, name: str) -> Checked:
    try:
        path = profiles.file(name)
    except ProfileError as error:
        return _refused(shown, error)
    return _profile_in(path)


def _profile_in(path: Path) -> Checked:
    try:
        found, ignored = profile.read(path)
        warnings = (*ignored, *_doubts_of_secret(path.parent / f"{found.name}{SUFFIX}"))
    except ProfileError as error:
        return _refused(path.name, error)
    return Checked(
        name=path.name, kind="profile", warnings=tuple(Told(line=0, message=each) for each in warnings)
    )


def _doubts_of_secret(path: Path) -> Iterator[str]:
    """The callback's secret beside the profile: ProfileError if it cannot be used."""
    try:
        secret, mode = path.read_bytes().strip(), path.stat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise ProfileError(f"the callback's secret {path.name} cannot be read: {error.strerror}") from error
    if len(secret) < MIN_SECRET_BYTES:
        raise ProfileError(f"the callback's secret {path.name} is shorter than {MIN_SECRET_BYTES} bytes")
    if mode & 0o007:
        yield f"the callback's secret {path.name} may be read by everybody here: chmod o= {path.name}"


def _refused(name: str, error: ProfileError) -> Checked:
    return Checked(
        name=name, kind="profile", errors=tuple(Told(line=0, message=each) for each in error.faults)
    )


def check_manifest(
    settings: Settings, source: str, expected: ManifestProfile | None = None, case_fold: bool = True
) -> Checked:
    """Everything that is wrong in a manifest, and what may not be meant."""
    data = fetch(settings, source, expected)
    most = settings.object_files if expected in (None, ManifestProfile.OBJECT) else None
    problems = checkm.check(data, expected, case_fold, most)
    if any(problem.severity is Severity.ERROR for problem in problems):
        return sorted_out(source, problems, "manifest", None)
    manifest = checkm.parse(data, source, expected, case_fold)
    limit, setting = _limit(settings, manifest.profile)
    _check_size(len(data), limit, source, setting)
    return sorted_out(source, problems, manifest.profile.submission_type.label, len(manifest.rows))


def fetch(settings: Settings, source: str, profile: ManifestProfile | None) -> bytes:
    """The bytes of a file of this machine, or of a URL as a worker would fetch it."""
    if "://" in source:
        check_url(source)
        with HttpFetcher(settings) as fetcher:
            return fetcher.read(source, _limit(settings, profile)[0])
    return read_file(settings, Path(source), profile)


def read_file(settings: Settings, path: Path, profile: ManifestProfile | None) -> bytes:
    """A manifest, or a table to be made one of."""
    limit, setting = _limit(settings, profile)
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise UsageRefused(f"{path} cannot be read: {error.strerror}") from error
    _check_size(len(data), limit, str(path), setting)
    return data


def _limit(settings: Settings, profile: ManifestProfile | None) -> tuple[int, str]:
    """Bytes that are taken, and the setting that says so; the larger one while the profile is not known."""
    if profile in (None, ManifestProfile.OBJECT):
        return settings.object_manifest_limit, "ARKLINE_OBJECT_MANIFEST_LIMIT"
    return settings.manifest_limit, "ARKLINE_MANIFEST_LIMIT"


def _check_size(size: int, limit: int, name: str, setting: str) -> None:
    if size > limit:
        raise UsageRefused(
            f"{name} has more than the {in_units(limit)} of a manifest that are taken: divide it, or raise "
            f"{setting}"
        )
