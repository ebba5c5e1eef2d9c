"""A dry run tells what a submission would come to, and leaves everything as it is."""

import getpass
import hashlib
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from operations.deposits.dry_run import dry_run_local, perform_dry_run
from operations.deposits.dry_run_result import DryRunResult, Fit, LocalPlan, SpaceNeed, plans
from operations.deposits.local_deposit import plan_deposit
from operations.site import Site
from pipeline.inventory.sql import SqlInventory, open_inventory
from pipeline.principal import Forbidden, Role
from pipeline.profiles.profile import Profiles
from pipeline.records import SubmissionType
from pipeline.settings import Settings
from tests.servers.http_source import HttpSource
from tests.support import cli as arkline
from tests.support import planting
from tests.support.manifests import BATCH, CONTAINERS, FILES, OBJECT, manifest
from tests.support.operators import ANN
from tests.support.recordings import recording
from tests.support.web import Web, serving
from zkstate.connection.session import Session
from zkstate.fleet import holds
from zkstate.fleet.holds import Hold
from zkstate.record import batches

OWNER = "ark:/99999/fk4harbour"
"""The owner in examples/profiles/demo.yaml."""


@pytest.fixture
def settings(settings: Settings) -> Settings:
    settings.working.mkdir(parents=True)
    return settings


def batch_of_objects(source: HttpSource, *objects: tuple[str, ...]) -> str:
    """A batch manifest; each object is the rows of its manifest."""
    lines = []
    for number, rows in enumerate(objects):
        url = source.put(f"/{number}.checkm", manifest(*rows, profile=OBJECT))
        lines.append(f"{url} | | | | | {number}.checkm | | local-{number}")
    return source.put("/batch.checkm", manifest(*lines, profile=BATCH))


def told(session: Session, settings: Settings, url: str, **more: Any) -> DryRunResult:
    submission = planting.submission(**{"payload_url": url, "type": SubmissionType.BATCH_MANIFEST, **more})
    return perform_dry_run(Site(settings, session), ANN, submission)


def messages(found: DryRunResult) -> list[tuple[int, str]]:
    return [(trouble.number, trouble.message) for trouble in found.failures]


def dump(inventory: SqlInventory, path: Path) -> list[str]:
    inventory.database.close()
    with closing(sqlite3.connect(path)) as database:
        return list(database.iterdump())


def test_what_would_happen_is_counted(session: Session, settings: Settings, source: HttpSource) -> None:
    first, second = source.put("/a", b"a" * 3000), source.put("/b", b"b" * 2000)
    digest = hashlib.sha256(b"a" * 3000).hexdigest()
    url = batch_of_objects(source, (f"{first} | sha256 | {digest} | 3000",), (f"{first}", f"{second}"))

    found = told(session, settings, url)

    assert (found.jobs, found.files, found.bytes, found.unsized) == (2, 3, 8000, 0)
    assert (found.without_digest, found.priority, found.failing) == (2, 11, 0)
    assert [(host.host, host.files, host.bytes) for host in found.hosts] == [("127.0.0.1", 3, 8000)]
    assert found.good
    assert found.space == SpaceNeed(total=8000, largest=5000, fit=Fit.ALL_NOW)


def test_nothing_is_changed(session: Session, settings: Settings, source: HttpSource) -> None:
    url = batch_of_objects(source, (source.put("/a", b"a"),))
    inventory = open_inventory(settings.inventory)
    inventory.reserve_local_ids(OWNER, "ark:/99999/fk4known", ("local-0",))
    file = settings.home / "inventory.sqlite"
    before = planting.tree(session), dump(inventory, file), sorted(settings.home.rglob("*"))

    found = told(session, settings, url)

    assert found.known == {"local-0": "ark:/99999/fk4known"}
    after = planting.tree(session), dump(inventory, file), sorted(settings.home.rglob("*"))
    assert after == before


def test_every_object_that_would_fail_is_reported_with_its_reason(
    session: Session, settings: Settings, source: HttpSource
) -> None:
    good = source.put("/good", b"good")
    missing = source.url("/missing")
    url = batch_of_objects(
        source,
        (good,),
        (missing, f"{missing}2"),
        (f"{good} | | | 5",),
        ("ftp://127.0.0.1/x",),
        (good, good),
    )

    found = told(session, settings, url)

    assert (found.jobs, found.failing) == (5, 4)
    numbers = [number for number, _ in messages(found)]
    assert numbers == [2, 2, 3, 4, 5]
    text = " ".join(message for _, message in messages(found))
    for reason in ("404 Not Found", "5 were declared", "http:// or https://", "is given twice"):
        assert reason in text
    assert not found.good


@pytest.mark.parametrize(("ark", "failing"), [("ark:/99999/fk4-mine", 0), ("ark:/12345/theirs", 1)])
def test_a_name_that_the_collection_may_not_give_would_fail(
    session: Session, settings: Settings, source: HttpSource, ark: str, failing: int
) -> None:
    url = source.put("/a.txt", b"a")

    found = told(session, settings, url, type=SubmissionType.FILE, primary_id=ark)

    assert found.failing == failing
    assert ["begin with ark:/99999/fk4" in message for _, message in messages(found)] == [True] * failing


def test_a_fault_that_may_pass_is_a_doubt(session: Session, settings: Settings, source: HttpSource) -> None:
    busy = source.put("/busy", b"x", status=503)

    found = told(session, settings, batch_of_objects(source, (busy,)))

    assert (found.failing, found.doubtful) == (0, 1)
    assert "503" in found.doubts[0].message


def test_a_host_on_a_private_network_would_fail(
    session: Session, settings: Settings, source: HttpSource
) -> None:
    wary = settings.model_copy(update={"allow_networks": ()})
    url = source.put("/a.txt", b"a")

    found = told(session, wary, url, type=SubmissionType.FILE)

    assert "has no public address" in messages(found)[0][1]


def test_a_payload_that_cannot_be_split_is_reported(
    session: Session, settings: Settings, source: HttpSource
) -> None:
    url = source.put("/batch.checkm", manifest("ftp://x | | |", profile=FILES))

    found = told(session, settings, url)

    assert found.failing == 1
    assert found.failures[0].number == 0
    assert "submit it as type single-file-batch-manifest" in found.failures[0].message


def test_an_address_that_two_objects_have_is_reported(
    session: Session, settings: Settings, source: HttpSource
) -> None:
    url = source.put("/a.txt", b"a")
    batch = source.put("/batch.checkm", manifest(f"{url} ||||| a", f"{url} ||||| b", profile=FILES))

    found = told(session, settings, batch, type=SubmissionType.SINGLE_FILE_BATCH_MANIFEST)

    assert (found.repeated_count, found.failing) == (1, 0)
    assert "2 objects have the URL" in found.repeated[0]


def test_two_rows_with_one_local_id_would_fail(
    session: Session, settings: Settings, source: HttpSource
) -> None:
    url = source.put("/a.txt", b"a")
    lines = [f"{url} | | | | | a.txt | | same", f"{url} | | | | | a.txt | | same"]
    batch = source.put("/batch.checkm", manifest(*lines, profile=FILES))

    found = told(session, settings, batch, type=SubmissionType.SINGLE_FILE_BATCH_MANIFEST)

    assert "line 3 has the same local id 'same'" in found.failures[0].message
    assert not found.good


def record_harbour(settings: Settings) -> None:
    """An object that the repository has."""
    open_inventory(settings.inventory).record(
        recording(
            ark="ark:/99999/fk4kept",
            owner=OWNER,
            collections=Profiles(settings.profiles).get("demo").collections,
            local_id=("known",),
            erc=(("what", "Harbour"),),
        )
    )


def test_the_title_of_an_object_of_another_owner_is_not_shown(
    session: Session, settings: Settings, source: HttpSource
) -> None:
    secret = recording("ark:/99999/fk4theirs", jid="jidtheirs", erc=(("what", "Secret"),))
    open_inventory(settings.inventory).record(secret)

    found = told(
        session, settings, source.put("/a", b"a"), type=SubmissionType.FILE, primary_id="ark:/99999/fk4theirs"
    )

    (trouble,) = found.failures
    assert "belongs to another owner" in trouble.message
    assert "Secret" not in found.model_dump_json()


def test_a_row_of_a_local_table_that_names_an_object_would_fail(
    session: Session, settings: Settings, tmp_path: Path
) -> None:
    record_harbour(settings)
    table = tmp_path / "objects.csv"
    table.write_text(
        "URL,ARK,Call Number\nhttps://x.edu/a.jpg,,new\nhttps://x.edu/b.jpg,ark:99999/fk4-kept,\n"
    )

    submission = planting.submission()
    found = dry_run_local(Site(settings, session), ANN, submission, *plans(submission, plan_deposit(table)))

    assert (found.jobs, found.failing, [number for number, _ in messages(found)]) == (2, 1, [2])
    assert found.known == {"ark:99999/fk4-kept": "ark:/99999/fk4kept"}
    assert found.without_digest == 2


def test_a_plan_of_an_older_client_which_names_the_largest_files_alone_is_judged(
    session: Session, settings: Settings
) -> None:
    small = settings.model_copy(update={"upload_bytes": 4})
    sent = {"objects": 2, "files": 2, "bytes": 6, "largest": [{"name": "files/a", "size": 5}]}

    found = dry_run_local(Site(small, session), ANN, planting.submission(), LocalPlan.model_validate(sent))

    assert messages(found) == [(0, "'files/a': 5 bytes are more than 4 (ARKLINE_UPLOAD_BYTES)")]
    assert (found.jobs, found.failing, found.objects) == (2, 2, ())


def test_the_files_of_a_manifest_that_cannot_be_read_are_not_known(
    session: Session, settings: Settings, source: HttpSource
) -> None:
    (one,) = told(session, settings, batch_of_objects(source, ("ftp://x",))).objects

    assert (one.files, one.bytes, len(one.errors)) == (None, None, 1)


@pytest.mark.parametrize("named", [{"local_id": ("known",)}, {"primary_id": "ark:/99999/fk4-kept"}])
def test_an_object_that_would_get_a_version_is_named_and_needs_a_yes(
    session: Session, settings: Settings, source: HttpSource, named: dict[str, Any]
) -> None:
    url = source.put("/a.txt", b"a")
    record_harbour(settings)

    refused = told(session, settings, url, type=SubmissionType.FILE, **named)
    allowed = told(session, settings, url, type=SubmissionType.FILE, new_version=True, **named)

    assert set(allowed.known.values()) == {"ark:/99999/fk4kept"}
    assert (allowed.failing, allowed.new_version) == (0, True)
    assert (refused.failing, refused.new_version) == (1, False)
    assert "ark:/99999/fk4kept, 'Harbour', is in collection demo" in refused.failures[0].message


def test_a_container_counts_as_estimating_counts_it(
    session: Session, settings: Settings, source: HttpSource
) -> None:
    url = source.put("/a.zip", b"z" * 1000)
    batch = source.put("/batch.checkm", manifest(f"{url}", profile=CONTAINERS))
    small = settings.model_copy(update={"working_capacity": 1500})

    found = told(session, small, batch, type=SubmissionType.CONTAINER_BATCH_MANIFEST)

    assert (
        "needs 2.0 kB, but 80 % of working storage is only 1.2 kB: it can never fit" in messages(found)[0][1]
    )


def test_a_pause_and_a_hold_are_reported(session: Session, settings: Settings, source: HttpSource) -> None:
    holds.place(session, Hold(by="ann"))
    holds.place(session, Hold(by="bob", reason="audit"), "demo")

    found = told(session, settings, source.put("/a.txt", b"a"), type=SubmissionType.FILE)

    assert found.paused is not None
    assert found.hold is not None
    assert (found.paused.by, found.hold.by) == ("ann", "bob")


def test_an_idempotency_key_that_was_used_is_reported(
    session: Session, settings: Settings, source: HttpSource
) -> None:
    moment = datetime(2026, 9, 1, tzinfo=UTC)
    given = {"idempotency_key": "k", "type": SubmissionType.FILE, "submitted_at": moment}
    url = source.put("/a.txt", b"a")
    bid = batches.submit(session, planting.submission(payload_url=url, **given))

    assert told(session, settings, url, **given).submitted_before == bid


def test_the_estimate_says_from_what_it_comes(
    session: Session, settings: Settings, source: HttpSource
) -> None:
    slow = source.put("/a", b"a" * 40_000, piece=10_000, pause=0.1)

    found = told(session, settings, batch_of_objects(source, (slow,)))

    assert found.estimate is not None
    assert found.estimate.least is not None
    assert found.estimate.most is not None
    assert 0.2 < found.estimate.most < 10
    assert found.estimate.least == pytest.approx(found.estimate.most / 4, abs=0.1)
    assert (found.estimate.sampled, found.estimate.measured, found.estimate.unmeasured) == (40000, 1, ())


@pytest.mark.parametrize("kind", ["folder", "a.zip", "a.tar.gz"])
def test_a_dry_run_of_local_files_names_folders_without_files(
    kind: str, settings: Settings, tmp_path: Path
) -> None:
    local = tmp_path / "local"
    (local / "folder" / "empty" / "inner").mkdir(parents=True)
    (local / "folder" / "full").mkdir()
    (local / "folder" / "full" / "a.txt").write_text("a")
    for form in ("zip", "gztar"):
        shutil.make_archive(str(local / "a"), form, local / "folder")

    done = arkline.run(settings, "submit", "--profile", "demo", "--dry-run", str(local / kind))

    assert "folders without files are not deposited: 'empty/inner'\n" in done.err
    assert done.code == 0


def test_submit_says_that_the_object_has_a_version_of_another_depositor(
    session: Session, settings: Settings
) -> None:
    demo = Profiles(settings.profiles).get("demo")
    known = recording(
        owner=demo.owner, collections=demo.collections, local_id=("known",), depositor="token:other"
    )
    open_inventory(settings.inventory).record(known)

    options = ("--profile", "demo", "--local-id", "known", "--new-version")
    done = arkline.run(settings, "submit", "http://example.org/a.txt", *options)

    assert "has a version of another depositor" in " ".join(done.err.split())
    assert done.code == 0


def test_a_dry_run_of_a_damaged_container_refuses_it(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(b"PK\3\4 and no more")

    done = arkline.run(settings, "submit", "--profile", "demo", "--dry-run", str(tmp_path / "a.zip"))

    assert "container 'a.zip' is damaged" in " ".join(done.err.split())
    assert done.code != 0


def test_a_damaged_container_is_refused_before_it_is_uploaded(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_bytes(b"PK\3\4 and no more")

    done = arkline.run(settings, "submit", "--profile", "demo", str(tmp_path / "a.zip"))

    assert "container 'a.zip' is damaged" in " ".join(done.err.split())
    assert done.code != 0
    assert not list(settings.uploads_folder.rglob("upload.json"))


def test_a_dry_run_needs_the_right_to_submit(
    session: Session, settings: Settings, source: HttpSource
) -> None:
    elsewhere = ANN.model_copy(update={"role": Role.DEPOSITOR, "collections": frozenset({"other"})})

    with pytest.raises(Forbidden, match="must not submit to collection demo"):
        perform_dry_run(Site(settings, session), elsewhere, planting.submission())


def test_only_so_much_is_asked_as_is_allowed(
    session: Session, settings: Settings, source: HttpSource
) -> None:
    url = batch_of_objects(source, (source.put("/a", b"a"),), (source.put("/b", b"b"),))
    submission = planting.submission(payload_url=url, type=SubmissionType.BATCH_MANIFEST)

    found = perform_dry_run(Site(settings, session), ANN, submission, most=1)

    assert (found.jobs, found.unread, found.files, found.asked) == (2, 1, 1, 1)
    assert source.count("/b") == 0


def test_the_command_shows_it_and_submits_nothing(
    session: Session, settings: Settings, source: HttpSource
) -> None:
    command = ("submit", "--profile", "demo", "--dry-run", source.put("/a.txt", b"a"))

    shown = arkline.run(settings, *command)
    as_json = arkline.run(settings, *command, "--json")
    failing = arkline.run(settings, *command[:-1], source.url("/none.txt"))

    assert (shown.code, as_json.code, failing.code) == (0, 0, 1)
    assert "1, of which 0 would fail" in shown.out
    assert as_json.json()["bytes"] == 1
    assert "would fail: object 1, none.txt:" in failing.err
    assert session.children("/batches") == []


def test_the_command_names_the_type_as_it_is_typed_and_claims_nothing_of_storage_that_no_job_has_used(
    session: Session, settings: Settings, source: HttpSource
) -> None:
    settings.working.rmdir()
    url = source.put("/batch.checkm", manifest(source.put("/a", b"a"), profile=FILES))
    kind = SubmissionType.SINGLE_FILE_BATCH_MANIFEST.label

    shown = arkline.run(settings, "submit", "--profile", "demo", "--dry-run", "--type", kind, url)

    assert f"({kind}, add)" in " ".join(shown.out.split())
    assert "or no job has used it yet" in " ".join(shown.out.split())


def table(folder: Path, rows: int, declared: str = "") -> Path:
    """A table of files; all have a title, and the first a call number of an object that is here."""
    (folder / "letters").mkdir()
    lines = ["File,Title,Call Number,MD5"]
    for number in range(1, rows + 1):
        (folder / "letters" / f"{number}.txt").write_text(f"letter {number}")
        lines.append(f"{number}.txt,Letter {number},{'known' if number == 1 else ''},{declared}")
    path = folder / "letters" / "letters.csv"
    path.write_text("\n".join(lines))
    return path


@pytest.fixture
def web(settings: Settings) -> Iterator[Web]:
    with serving(settings) as running:
        yield running


Remote = Callable[..., arkline.Finished]


@pytest.fixture
def remote(web: Web, settings: Settings, tmp_path: Path) -> Remote:
    """Runs a command on a machine that reaches the site by its API alone, with the token of anna."""
    alone = settings.model_copy(
        update={
            "zk_hosts": "127.0.0.1:1",
            "broker_url": "redis://127.0.0.1:1/0",
            "home": tmp_path / "elsewhere",
        }
    )
    token = web.caller(Role.DEPOSITOR, ["demo", "nosuch"], name="anna").token
    return partial(arkline.run, alone, ARKLINE_URL=web.url, ARKLINE_TOKEN=token)


def test_a_dry_run_of_a_table_shows_its_objects_beside_the_stack_and_over_the_api(
    settings: Settings, tmp_path: Path, remote: Remote
) -> None:
    record_harbour(settings)
    command = ("submit", "-p", "demo", "--dry-run", "--new-version", str(table(tmp_path, 30)))

    here = arkline.run(settings, *command)
    there = remote(*command)
    listed = remote(*command, "--json").json()["objects"]

    assert (here.code, there.code) == (0, 0)
    assert here.out == there.out
    shown = " ".join(there.out.split())
    assert "object name title local ids size becomes" in shown
    assert "1 1.txt Letter 1 known 8 bytes version 2 of ark:/99999/fk4kept" in shown
    assert "20 20.txt Letter 20 9 bytes new" in shown
    assert "21.txt" not in shown
    assert "and 10 objects more (--json lists them)" in there.err
    assert [one["title"] for one in listed] == [f"Letter {number}" for number in range(1, 31)]


def test_a_dry_run_over_the_api_refuses_what_a_job_would(
    settings: Settings, tmp_path: Path, remote: Remote
) -> None:
    record_harbour(settings)
    path = str(table(tmp_path, 2, declared="0" * 32))

    refused = remote("submit", "-p", "demo", "--dry-run", path)
    unknown = remote("submit", "-p", "nosuch", "--dry-run", path)

    said = " ".join(refused.err.split())
    assert refused.code == 1
    actual = hashlib.md5(b"letter 2", usedforsecurity=False).hexdigest()
    assert f"object 2, 2.txt: '2.txt': the md5 digest is {actual}, but 000" in said
    assert "ark:/99999/fk4kept, 'Harbour', is in collection demo already" in said
    assert "2, of which 2 would fail" in refused.out
    assert "there is no profile 'nosuch'" in unknown.err


def test_a_deposit_over_the_api_is_by_the_tokens_name(
    session: Session, settings: Settings, tmp_path: Path, remote: Remote
) -> None:
    (tmp_path / "a.txt").write_text("a")

    there = remote("submit", "-p", "demo", str(tmp_path / "a.txt"))
    here = arkline.run(settings, "submit", "-p", "demo", str(tmp_path / "a.txt"))

    by = [batches.load(session, done.out.strip()).submission.submitter for done in (there, here)]
    assert by == ["anna", getpass.getuser()]


def test_a_manifest_is_checked_by_the_rules_of_a_collection(settings: Settings, tmp_path: Path) -> None:
    record_harbour(settings)
    rows = ("https://x.edu/a | | | | | a | | known", "https://x.edu/b | | | | | b | ark:/12345/x")
    path = tmp_path / "list.checkm"
    path.write_bytes(manifest(*rows, profile=FILES))

    alone = arkline.run(settings, "manifest", "check", str(path))
    done = arkline.run(settings, "manifest", "check", "--profile", "demo", str(path))

    said = " ".join(done.err.split())
    assert (alone.code, done.code) == (0, 1)
    assert "list.checkm:4: error: ark:/12345/x names no object yet" in said
    assert "list.checkm:3: warning: ark:/99999/fk4kept, 'Harbour', is in collection demo already" in said
