"""Registers ARKs with the archive's resolver, which reads a folder with a file for each ARK."""

import json
from pathlib import Path
from urllib.parse import quote

from pydantic import Field

from pipeline.attempt import UNATTENDED
from pipeline.description import anvl
from pipeline.identifiers.minter import Assignment, LastCheck, Minter
from pipeline.outcome import Service, ServiceDown, system
from pipeline.profiles.profile import Profile
from pipeline.settings import EnvironmentSettings, Settings, read_settings


class ResolverSettings(EnvironmentSettings):
    resolver_folder: Path = Field(Path(), description="Folder that the resolver reads.")


class ResolverMinter(Minter):
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def uses_service(self, profile: Profile) -> bool:
        return True

    def announce(
        self,
        ark: str,
        profile: Profile,
        erc: anvl.Pairs,
        assigned: Assignment | None = None,
        last_check: LastCheck = UNATTENDED.check,
    ) -> None:
        """Write the ARK's file, with the job that registered it and the description of the object."""
        if not self._folder.exists():
            raise ServiceDown(Service.IDENTIFIERS, f"the resolver's folder {self._folder} is not mounted")
        last_check()
        file = self._folder / f"{quote(ark, safe='')}.json"
        try:
            entry = json.loads(file.read_text()) if file.exists() else None
            if entry is None and assigned is None:
                return  # the depositor named the object, and registers the name
            job = assigned.job.configuration.key if assigned else ""
            if entry and assigned and entry["job"] != job and assigned.is_first():
                raise system(f"{ark} was just minted, and the resolver has it: set the counter beyond it")
            new = self._folder / f"{file.name}.{job}"
            new.write_text(json.dumps({"job": entry["job"] if entry else job, "object": erc}))
            new.replace(file)
        except OSError as error:
            raise system(f"{ark} cannot be written to the resolver's folder: {error}") from error


def open_minter(settings: Settings) -> ResolverMinter:
    return ResolverMinter(read_settings(ResolverSettings).resolver_folder)
