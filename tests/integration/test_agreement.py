"""One judge: all ways to ask what a deposit would do agree with each other, and with what jobs then do.

200 deposits are generated. Each is judged as files of this machine, over the API, as a draft, by URL and as a
manifest; of some, the jobs are worked on until they fail or are stored. The ways are compared in what all of
them know: a manifest's check reads no file, and a source states sizes, but no digests.
"""

import csv
import dataclasses
import io
import json
import random
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha512
from pathlib import Path
from typing import Any

import pytest

from operations.deposits.dry_run import dry_run_local, perform_dry_run
from operations.deposits.dry_run_result import DryRunResult, plans, together
from operations.deposits.local_deposit import plan_deposit
from operations.deposits.planned import NEW_VERSION
from operations.deposits.validation import (
    Finding,
    ManifestBytes,
    check_manifest,
    planned_deposit,
    with_judgement,
)
from operations.site import Site
from pipeline.fixity import Digest
from pipeline.identifiers.minter import Minter
from pipeline.inventory.sql import open_inventory
from pipeline.manifests import checkm, split
from pipeline.manifests.checkm import ManifestError, ManifestProfile, Row
from pipeline.outcome import Done, StepFailed
from pipeline.principal import Role
from pipeline.profiles.profile import Profiles, UnknownProfile, with_site_limits
from pipeline.records import Identifiers, Job, JobConfiguration, Submission, SubmissionType
from pipeline.settings import Settings
from pipeline.states import JobState
from pipeline.steps import download, estimate, pending, process, provision, record
from pipeline.steps.context import StepContext
from pipeline.storage.ocfl.storage import OcflStorage
from pipeline.working_storage import mount
from pipeline.working_storage.capacity import measure_again
from tests.servers.http_source import HttpSource
from tests.support.memory_record import MemoryJobRecord
from tests.support.operators import ANN
from tests.support.records import a_job, jid
from tests.support.step_context import services
from tests.support.web import Caller, serving
from zkstate.connection.session import Session

DEPOSITS = 200
WORKED = 60
"""Deposits whose jobs are worked on."""

REPEATED = "would become two versions of one object"
SIZES = (10, 3_000, 90_000)
"""The collection `strict` takes the first alone; working storage never has room for the last."""

PROFILES: dict[str, dict[str, Any]] = {
    "demo": {"collections": ["ark:/99999/m5demo"]},
    "strict": {"collections": ["ark:/99999/m5demo"], "limits": {"object_bytes": 2000, "batch_jobs": 2}},
    "free": {"collections": ["ark:/99999/m5demo"], "new_versions": True},
    "other": {"collections": ["ark:/99999/m5other"]},
    "theirs": {"collections": ["ark:/99999/m5theirs"], "owner": "ark:/99999/fk4them"},
}


@dataclass(frozen=True)
class Item:
    """A row: a file, and what is said of it."""

    name: str
    body: bytes
    title: str
    local_id: tuple[str, ...] = ()
    ark: str = ""
    size: int | None = None
    digest: str = ""

    def row(self, url: str) -> Row:
        digest = Digest(algorithm="sha-512", value=self.digest) if self.digest else None
        return Row(
            0,
            url,
            self.name,
            digest,
            self.size,
            primary_id=self.ark or None,
            local_id=self.local_id,
            title=self.title,
        )


@dataclass(frozen=True)
class Given:
    """A generated deposit."""

    number: int
    profile: str
    items: tuple[Item, ...]
    agreed: dict[str, int] = field(default_factory=dict)

    @property
    def repeats(self) -> bool:
        """Whether two rows have an identifier in common."""
        named = [name for item in self.items for name in (*item.local_id, item.ark) if name]
        return len(set(named)) < len(named)

    def submission(self, url: str) -> Submission:
        return Submission(
            profile_name=self.profile,
            payload_url=url,
            payload_filename="list.checkm",
            type=SubmissionType.SINGLE_FILE_BATCH_MANIFEST,
            new_version=False,
            new_version_of=self.agreed,
        )

    def table(self) -> bytes:
        text = io.StringIO()
        written = csv.writer(text)
        written.writerow(("File", "Title", "Local id", "ARK", "Size", "SHA-512"))
        for item in self.items:
            size = "" if item.size is None else item.size
            written.writerow((item.name, item.title, ";".join(item.local_id), item.ark, size, item.digest))
        return text.getvalue().encode()


Errors = set[tuple[int, str | None, str]]
"""(place of the object, field, message)."""


@dataclass
class World:
    """One site with objects that exist, and everything that steps need."""

    settings: Settings
    session: Session
    source: HttpSource
    record: MemoryJobRecord = field(default_factory=MemoryJobRecord)
    jobs: int = 0

    def __post_init__(self) -> None:
        self.site = Site(self.settings, self.session)
        self.storage = OcflStorage(self.settings.storage)
        self.inventory = open_inventory(self.settings.inventory)

    def context(self, profile: str) -> StepContext:
        return dataclasses.replace(
            services(self.settings, self.record),
            profile_of=lambda: with_site_limits(Profiles(self.settings.profiles).get(profile), self.settings),
            minter_of=lambda _: Minter(),
            storage=self.storage,
            inventory=self.inventory,
        )

    def put(self, given: Given) -> tuple[str, bytes]:
        """The deposit's files and its manifest, at the source: the manifest's address and bytes."""
        rows = [item.row(self.source.put(f"/{given.number}/{item.name}", item.body)) for item in given.items]
        try:
            data = checkm.write(ManifestProfile.FILE_BATCH, rows)
        except ManifestError:  # two rows with one identifier
            unique = [dataclasses.replace(row, local_id=(), primary_id=None) for row in rows]
            lines = checkm.write(ManifestProfile.FILE_BATCH, unique).decode().splitlines()
            for place, item in enumerate(given.items, len(lines) - 1 - len(rows)):
                cells = lines[place].split(" | ")
                cells[6:8] = item.ark, ";".join(item.local_id)
                lines[place] = " | ".join(cells)
            data = "\n".join([*lines, ""]).encode()
        return self.source.put(f"/{given.number}/list.checkm", data), data

    def work(self, given: Given) -> dict[int, str]:
        """Work on the deposit's jobs until each has failed or is recorded: place -> why it failed."""
        url, _ = self.put(given)
        submission = given.submission(url)
        context = self.context(given.profile)
        self.record.agreed = given.agreed
        read = context.fetcher.read
        try:
            planned = split.plan(
                submission, read, self.settings.manifest_limit, None, context.profile.limits.batch_jobs
            )
        except StepFailed as failure:
            return {0: failure.message}
        return {
            place: message
            for place, one in enumerate(planned.jobs, 1)
            if (message := self._work(self._job(submission, one), context))
        }

    def _job(self, submission: Submission, planned: split.PlannedJob) -> Job:
        self.jobs += 1
        number = self.jobs
        folder = str(self.settings.working / "bid0000000001" / jid(number))
        given = dict(submission) | vars(planned) | {"batch_id": "bid0000000001", "working_dir": folder}
        job = a_job(number, JobState.PENDING, op="attempt-1")
        identifiers = Identifiers(primary_id=planned.primary_id, local_id=planned.local_id)
        configuration = JobConfiguration.model_validate(given | {"key": f"{number:032x}"})
        return job.model_copy(update={"configuration": configuration, "identifiers": identifiers})

    def _work(self, job: Job, context: StepContext) -> str:
        try:
            for step in (pending, estimate, provision, download, process, record):
                done = step.work(job, context)
                assert isinstance(done, Done), done
                if done.space_needed is not None:
                    job = job.model_copy(update={"space_needed": done.space_needed})
                job = job.model_copy(update={"identifiers": self.record.identifiers(job)})
        except StepFailed as failure:
            return failure.message
        finally:
            shutil.rmtree(job.configuration.working_dir, ignore_errors=True)
            measure_again()
        return ""

    def keep(self, profile: str, name: str, times: int = 1) -> str:
        """Store an object with this local id, in as many versions; its ARK."""
        for time in range(times):
            item = Item(f"{name}.txt", f"{name} {time}".encode(), name.title(), (name,))
            ark = self.inventory.arks_of(Profiles(self.settings.profiles).get(profile).owner, (name,))
            agreed = {ark[name]: time} if ark else {}
            assert self.work(Given(10_000 + self.jobs, profile, (item,), agreed)) == {}
        return self.inventory.arks_of(Profiles(self.settings.profiles).get(profile).owner, (name,))[name]


@pytest.fixture(scope="module")
def module_settings(module_settings: Settings) -> Settings:
    profiles = module_settings.home / "profiles"
    profiles.mkdir()
    for name, rules in PROFILES.items():
        text = {"owner": "ark:/99999/fk4us", "given_arks": ["ark:/99999/g5"], **rules}
        (profiles / f"{name}.yaml").write_text(json.dumps(text))
    changes = {"profiles": profiles, "working_capacity": 100_000}
    settings = module_settings.model_copy(update=changes)
    mount.mark(settings.working)
    return settings


@pytest.fixture(scope="module")
def world(module_settings: Settings, record: Session, module_source: HttpSource) -> World:
    return World(module_settings, record, module_source)


@pytest.fixture(scope="module")
def module_source() -> Iterator[HttpSource]:
    with HttpSource() as running:
        yield running


@pytest.fixture(scope="module")
def caller(module_settings: Settings) -> Iterator[Caller]:
    with serving(module_settings) as running:
        yield running.caller(Role.DEPOSITOR, ["demo", "strict", "free", "nosuch"], name="ada")


@dataclass(frozen=True)
class Kept:
    """The ARKs of the objects that exist; `twice` has two versions."""

    once: str
    twice: str
    other: str
    theirs: str


@pytest.fixture(scope="module")
def kept(world: World) -> Kept:
    return Kept(
        once=world.keep("demo", "once"),
        twice=world.keep("demo", "twice", times=2),
        other=world.keep("other", "other"),
        theirs=world.keep("theirs", "theirs"),
    )


def generated(kept: Kept) -> list[Given]:
    """The same deposits in every run."""
    chance = random.Random(135)
    arks = ("", "", "", "", kept.once, kept.theirs, kept.other, "ark:/12345/x1", "ark:/99999/g5")
    agreements: tuple[dict[str, int], ...] = (
        {},
        {},
        {kept.once: 1},
        {kept.twice: 2},
        {kept.twice: 1},
        {kept.once: 1, kept.twice: 2},
    )

    def item(deposit: int, row: int) -> Item:
        body = f"{deposit}/{row} ".encode().ljust(chance.choice((SIZES[0],) * 6 + SIZES), b"x")
        ids = ("new-1", "new-2", "once", "twice", "other", f"own-{deposit}-{row}")
        local_id = tuple(chance.sample(ids, chance.choice((0, 1, 1, 1, 2))))
        ark = chance.choice(arks)
        digest = sha512(body).hexdigest()
        return Item(
            name=f"{deposit}-{row}.txt",
            body=body,
            title=f"Title {deposit}/{row}",
            local_id=local_id,
            ark=f"{ark}{deposit}{row}" if ark.endswith("g5") else ark,
            size=chance.choice((None, None, None, len(body), len(body), len(body) + 1)),
            digest=chance.choice(("", "", digest, digest, digest[::-1])),
        )

    return [
        Given(
            number,
            profile="nosuch" if number % 50 == 49 else chance.choice(("demo", "strict", "free")),
            items=tuple(item(number, row) for row in range(1, chance.choice((2, 2, 3, 4)))),
            agreed=chance.choice(agreements),
        )
        for number in range(DEPOSITS)
    ]


def errors_of(result: DryRunResult) -> Errors:
    whole: Errors = {(0, None, trouble.message) for trouble in result.failures if not trouble.number}
    return whole | {
        (one.number, problem.field, problem.message) for one in result.objects for problem in one.errors
    }


def versions_of(result: DryRunResult) -> list[tuple[int, str | None, int | None]]:
    return [(one.number, one.version_of, one.version) for one in result.objects]


def without(errors: Errors, *fields: str) -> Errors:
    return {error for error in errors if error[1] not in fields}


def write(given: Given, folder: Path) -> Path:
    folder.mkdir()
    for item in given.items:
        (folder / item.name).write_bytes(item.body)
    table = folder / "list.csv"
    table.write_bytes(given.table())
    return table


def over_api(caller: Caller, submission: Submission, parts: Sequence[Any]) -> DryRunResult | str:
    body = {
        "profile": submission.profile_name,
        "source": submission.payload_url,
        "type": submission.type,
        "new_version_of": submission.new_version_of,
    }
    answers = [
        caller.post("/v1/batches/files/dry-run", {**body, "plan": part.model_dump(mode="json")})
        for part in parts
    ]
    if answers[0].status_code != 200:
        return str(answers[0].json()["detail"])
    return together([DryRunResult.model_validate_json(answer.text) for answer in answers])


def previewed(caller: Caller, upload: str, given: Given) -> dict[str, Any] | str:
    """The preview of the draft of this table."""
    table = f"{given.number}.csv"
    assert caller.request("PUT", f"/v1/uploads/{upload}/{table}", data=given.table()).status_code == 201
    files = [
        {"name": item.name, "size": len(item.body), "sha512": sha512(item.body).hexdigest()}
        for item in given.items
    ]
    draft = {
        "profile": given.profile,
        "objects": "table",
        "files": files,
        "table": table,
        "new_version": given.agreed,
    }
    answer = caller.request("PUT", f"/v1/drafts/{upload}", json=draft)
    preview: dict[str, Any] = answer.json()
    return preview if answer.status_code == 200 else str(preview["detail"])


Answer = tuple[Errors, list[tuple[int, str | None, int | None]]]
"""Errors, and (place, ARK, number) of the version that each object would become."""


def refusals(errors: Errors) -> set[str]:
    """What refuses the whole deposit, in the words of the judge: ways name the file and the line besides."""
    return {message.partition(": divide it")[0][-30:] for place, _, message in errors if not place}


def judged_here(world: World, given: Given, table: Path) -> DryRunResult:
    deposit = plan_deposit(table)
    parts = plans(given.submission("list.csv"), deposit, read=True)
    return together([dry_run_local(world.site, ANN, given.submission("list.csv"), part) for part in parts])


def checked(world: World, given: Given, data: bytes) -> tuple[Errors, Errors]:
    """Errors and warnings of the manifest's check with the collection's profile, by place."""
    manifest = ManifestBytes("list.checkm", data)
    result = check_manifest(world.settings, manifest)
    first = len(data.splitlines()) - 1 - len(given.items)
    if result.good:
        deposit = planned_deposit(manifest, None)
        submission = given.submission("list.checkm").model_copy(update={"new_version_of": {}})
        parts = [dry_run_local(world.site, ANN, submission, part) for part in plans(submission, deposit)]
        result = with_judgement(result, deposit, together(parts))

    def by_place(findings: Iterable[Finding]) -> Errors:
        return {(max(0, one.line - first), None, one.message) for one in findings}

    return by_place(result.errors), by_place(result.warnings)


def test_all_ways_to_ask_agree(world: World, caller: Caller, kept: Kept, tmp_path: Path) -> None:
    kinds = {"repeated": 0, "unknown": 0, "whole": 0, "good": 0, "refused": 0}
    upload = caller.request("POST", "/v1/uploads").json()["id"]
    for given in generated(kept):
        table = write(given, tmp_path / str(given.number))
        url, data = world.put(given)
        preview = previewed(caller, upload, given)
        if given.profile == "nosuch":
            kinds["unknown"] += 1
            with pytest.raises(UnknownProfile) as unknown:
                perform_dry_run(world.site, ANN, given.submission(url))
            deposit = None if given.repeats else plan_deposit(table)
            parts = plans(given.submission("list.csv"), deposit)
            assert over_api(caller, given.submission("list.csv"), parts) == preview == str(unknown.value)
            continue
        assert isinstance(preview, dict), preview
        seen = {
            (one["row"] - 1, problem["field"], problem["message"])
            for one in preview["objects"]
            for problem in one["errors"]
        }
        by_url = perform_dry_run(world.site, ANN, given.submission(url))
        in_manifest, of_manifest = checked(world, given, data)
        if given.repeats:
            kinds["repeated"] += 1
            with pytest.raises(ManifestError, match=REPEATED):
                plan_deposit(table)
            for errors in (seen, errors_of(by_url), in_manifest):
                # reading a manifest with more rows than are accepted ends there
                said = [message for _, _, message in errors]
                assert any(REPEATED in text or "more than 2 rows" in text for text in said), given
            continue
        here = judged_here(world, given, table)
        there = over_api(
            caller,
            given.submission("list.csv"),
            plans(given.submission("list.csv"), plan_deposit(table), read=True),
        )
        assert isinstance(there, DryRunResult), there
        assert (errors_of(there), there.objects, there.failing) == (
            errors_of(here),
            here.objects,
            here.failing,
        )
        whole = refusals(errors_of(here))
        assert whole == refusals({(0, None, message) for message in preview["errors"]})
        assert whole == refusals(in_manifest) == refusals(errors_of(by_url))
        of_objects = {error for error in errors_of(here) if error[0]}
        assert seen == of_objects, given
        assert [
            (one["row"] - 1, one["version_of"], one["version"]) for one in preview["objects"]
        ] == versions_of(here)
        if whole:
            kinds["whole"] += 1
            continue
        kinds["refused" if of_objects else "good"] += 1
        assert errors_of(by_url) == without(of_objects, "digest"), given
        assert versions_of(by_url) == versions_of(here)
        identified = {
            (place, None, message) for place, name, message in of_objects if name in ("ark", "local_id")
        }
        assert identified <= in_manifest, given
        assert {message for _, _, message in in_manifest} <= {message for _, _, message in of_objects}
        if not given.agreed:
            lacking = {(place, None, message) for place, name, message in of_objects if name == NEW_VERSION}
            assert lacking <= of_manifest, given
    assert all(count >= 4 for count in kinds.values()), kinds


def test_jobs_do_what_the_judge_says(world: World, kept: Kept, tmp_path: Path) -> None:
    outcomes = {"stored": 0, "refused": 0, "whole": 0}
    for given in generated(kept)[:WORKED]:
        if given.profile == "nosuch" or given.repeats:
            continue
        expected: dict[int, list[tuple[str | None, str]]] = {}
        for place, name, message in errors_of(
            judged_here(world, given, write(given, tmp_path / str(given.number)))
        ):
            expected.setdefault(place, []).append((name, message))

        failed = world.work(given)

        if 0 in expected:
            outcomes["whole"] += 1
            assert expected[0][0][1] in failed[0]
            continue
        assert failed.keys() == expected.keys(), (given, expected, failed)
        for place, message in failed.items():
            outcomes["refused"] += 1
            same = [
                said for name, said in expected[place] if name in (None, "size", "digest") or said in message
            ]
            assert same, (given, expected[place], message)
        outcomes["stored"] += len(given.items) - len(failed)
    assert all(count >= 3 for count in outcomes.values()), outcomes
