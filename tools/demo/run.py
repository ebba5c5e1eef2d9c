"""The demo from beginning to end."""

import json
import os
import shutil
import sys
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from entrypoints.cli import exit_codes
from entrypoints.stack import stack as whole
from entrypoints.stack.home import StackRunning, running_pid
from entrypoints.stack.ports import HOST
from entrypoints.stack.services import StackConfig
from entrypoints.stack.signals import stop_signals
from entrypoints.stack.supervisor import StopRequested
from operations.batch_view import BatchView
from pipeline.errors import ArklineError, UsageRefused
from pipeline.records import Submission, SubmissionType
from pipeline.settings import Settings
from pipeline.states import BatchState, Bucket
from tools.checkout import PROJECT, own_profiles
from tools.demo import collection, screen, source
from tools.demo.repository import Repository
from tools.dev.console import teller
from zkstate.session import connect

PROFILE = "demo"
HARBOUR = PROJECT / "examples" / "harbour"
LIMIT = 300
"""Seconds after which a demo that has not ended is called stuck; it takes a few on two cores."""

TAKEN_FROM_OUTSIDE = ("ARKLINE_ZK_HOSTS", "ARKLINE_BROKER_URL")
"""The only settings taken from outside: a demo must not write into somebody's repository."""


class DemoStuck(ArklineError):
    pass


@dataclass(frozen=True)
class Deposit:
    name: str
    manifest: str
    kind: SubmissionType


DEPOSITS = (
    Deposit("Three objects by their manifests", "objects.checkm", SubmissionType.BATCH_MANIFEST),
    Deposit("Two zip containers", "containers.checkm", SubmissionType.CONTAINER_BATCH_MANIFEST),
)


@dataclass(frozen=True)
class Outcome:
    batches: tuple[BatchView, ...]
    seconds: float

    @property
    def completed(self) -> bool:
        return all(each.status is BatchState.COMPLETED for each in self.batches)

    def jobs(self, bucket: Bucket) -> int:
        return sum(each.buckets[bucket] for each in self.batches)


def demonstrate(home: Path, as_json: bool, keep: bool) -> int:
    """Run it; 0 if every batch completed. With `as_json`, standard output has one line, for a program."""
    console = Console(stderr=as_json, highlight=False, soft_wrap=True)
    home = home.absolute()
    _clear(home)
    with stop_signals() as signals, source.serving(home / "source") as base:
        collection.prepare(HARBOUR, home / "source", base)
        try:
            with whole.running(_choice(home), signals, teller(console)) as stack:
                outcome = _deposit(stack, base, console)
                if as_json:
                    sys.stdout.write(json.dumps(summary(outcome, stack.settings)) + "\n")
                    sys.stdout.flush()
                if keep:
                    _until_stopped(stack, console)
        except StopRequested as wish:
            return exit_codes.of_error(wish)
    return 0 if outcome.completed else 1


def _clear(home: Path) -> None:
    """Forget the last demo; but only a demo, and only one that has ended."""
    if (pid := running_pid(home)) is not None:
        raise StackRunning(f"a demo runs already (process {pid}); stop it with Ctrl-C where it runs")
    if home.exists() and any(home.iterdir()) and not (home / "source").is_dir():
        raise UsageRefused(f"{home} is not a demo's folder, and would be emptied: choose another one")
    shutil.rmtree(home, ignore_errors=True)


def _choice(home: Path) -> StackConfig:
    for name in [
        each for each in os.environ if each.startswith("ARKLINE_") and each not in TAKEN_FROM_OUTSIDE
    ]:
        del os.environ[name]
    environment = own_profiles() | {
        "ARKLINE_ALLOW_NETWORKS": "127.0.0.0/8",  # where the sample collection is served
        "NO_PROXY": ",".join(filter(None, (HOST, os.environ.get("NO_PROXY")))),
    }
    if any(os.environ.get(name) for name in TAKEN_FROM_OUTSIDE):
        own = f"demo-{uuid.uuid4().hex[:8]}"
        environment |= {"ARKLINE_ZK_ROOT": f"/{own}", "ARKLINE_BROKER_PREFIX": f"{own}:"}
    return StackConfig(home=home, wait_for_all=False, environment=environment)


def _deposit(stack: whole.Stack, base: str, console: Console) -> Outcome:
    note = stack.info
    console.print(
        f"Flower: {note.flower_url} (login {note.flower_user} / {note.flower_password})", markup=False
    )
    with connect(stack.settings) as session:
        repository = Repository(session, stack.settings)
        began = time.monotonic()
        names = {repository.submit(_submission(each, base)): each.name for each in DEPOSITS}
        outcome = Outcome(_watch(stack, repository, names, console), time.monotonic() - began)
        for each in outcome.batches:
            screen.report(console, names[each.bid], each, repository.report(each.bid))
    settings = stack.settings
    screen.places(
        console,
        f"Done in {outcome.seconds:.1f} s. Where things are:",
        {
            "objects": str(settings.storage),
            "inventory": settings.inventory,
            "mail": str(settings.outbox_folder),
            "Flower": f"{note.flower_url} while the stack runs",
            "logs": str(stack.settings.home / "log"),
        },
    )
    return outcome


def _submission(deposit: Deposit, base: str) -> Submission:
    return Submission(
        profile_name=PROFILE,
        submitter="demo",
        payload_url=f"{base}/{deposit.manifest}",
        type=deposit.kind,
        payload_filename=deposit.manifest,
    )


def _watch(
    stack: whole.Stack, repository: Repository, names: Mapping[str, str], console: Console
) -> tuple[BatchView, ...]:
    """Show the batches until all have ended."""
    deadline = time.monotonic() + LIMIT
    with screen.meter(console, names) as meter:
        while True:
            found = tuple(repository.view(bid) for bid in names)
            for each in found:
                meter.show(each)
            if all(each.ended for each in found):
                return found
            if time.monotonic() > deadline:
                stuck = ", ".join(f"{each.bid} is {each.status}" for each in found if not each.ended)
                raise DemoStuck(
                    f"not done after {LIMIT} s: {stuck}; the logs are in {stack.settings.home / 'log'}"
                )
            stack.poll_for(0.2)


def summary(outcome: Outcome, settings: Settings) -> dict[str, object]:
    """The JSON object of `./dev demo --json`. Files and bytes are the depositors', as they are in storage."""
    stored = [path for path in settings.storage.rglob("v*/content/producer/**/*") if path.is_file()]
    return {
        "batches": [
            {
                "bid": each.bid,
                "status": str(each.status),
                "jobs": {
                    "completed": each.buckets[Bucket.COMPLETED],
                    "failed": each.buckets[Bucket.FAILED],
                },
            }
            for each in outcome.batches
        ],
        "status": "completed" if outcome.completed else "failed",
        "jobs": {
            "completed": outcome.jobs(Bucket.COMPLETED),
            "failed": outcome.jobs(Bucket.FAILED),
        },
        "files": len(stored),
        "bytes": sum(path.stat().st_size for path in stored),
        "seconds": round(outcome.seconds, 3),
        "storage_root": str(settings.storage),
        "inventory_url": settings.inventory,
        "outbox": str(settings.outbox_folder),
    }


def _until_stopped(stack: whole.Stack, console: Console) -> None:
    console.print("\nThe stack stays up; Ctrl-C stops it.")
    with suppress(StopRequested):
        while True:
            stack.poll_for(0.2)
