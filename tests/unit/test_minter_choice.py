"""Whose minter names the objects of a profile: a site's own, EZID's, or the local one."""

import os
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).parents[2]

OWN = """
from pipeline.identifiers.minter import Minter


class OwnMinter(Minter):
    def uses_service(self, profile):
        return True

    def mint(self, job, profile, job_record, *given, **named):
        return "ark:/99999/own"

    def announce(self, ark, profile, *given, **named):
        print("announced", ark)


def open_minter(settings):
    return OwnMinter()
"""

PROGRAM = """
from pipeline.steps.context import open_minters
from pipeline.profiles.profile import Profile
from pipeline.settings import Settings
from tests.support.memory_record import MemoryJobRecord
from plugins.conformance.minting import a_job

minter_of = open_minters(Settings())
for number, name in enumerate((None, "local")):
    profile = Profile(name="demo", owner="ark:/99999/o", collections=("ark:/99999/c",), minter=name)
    minter = minter_of(profile)
    ark = minter.mint(a_job(number), profile, MemoryJobRecord())
    minter.announce(ark, profile, ())
    print(name, ark, minter.uses_service(profile))
"""


def said(folder: Path, **variables: str) -> list[str]:
    """What a process says that has the site's wheel."""
    info = folder / "own_minter-1.0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Name: own-minter\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[arkline.minter]\nown_minter = own_minter:open_minter\n")
    (folder / "own_minter.py").write_text(OWN)
    environment = {
        **os.environ,
        "PYTHONPATH": f"{folder}:{PROJECT}",
        "ARKLINE_HOME": str(folder),
        **variables,
    }
    command = [sys.executable, "-c", PROGRAM]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    ).stdout.splitlines()


def test_a_minter_of_a_site_names_the_objects_of_profiles_that_name_none(tmp_path: Path) -> None:
    assert said(tmp_path, ARKLINE_OWN_MINTER="on") == [
        "announced ark:/99999/own",
        "None ark:/99999/own True",
        "local ark:/99999/fk4000000019 False",
    ]


def test_without_its_setting_it_names_none(tmp_path: Path) -> None:
    assert said(tmp_path) == [
        "None ark:/99999/fk4000000019 False",
        "local ark:/99999/fk4000000019 False",
    ]
