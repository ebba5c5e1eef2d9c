"""Maps the provider's groups to rights here: a YAML file that the operator writes."""

from pathlib import Path

import yaml
from pydantic import ConfigDict, Field, RootModel, ValidationError

from pipeline.errors import UsageRefused
from pipeline.principal import Role
from pipeline.records import Record


class Rights(Record):
    """The rights of a group's members; `collections` None: all of them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    role: Role
    collections: frozenset[str] | None = Field(default=None, min_length=1)


class Groups(RootModel[dict[str, Rights]]):
    """The groups in file order: a person has the rights of the first group that they belong to."""

    def first_of(self, names: frozenset[str]) -> str | None:
        """The group whose rights a member of these groups has; None if there is none."""
        return next((group for group in self.root if group in names), None)

    def rights(self, group: str) -> Rights | None:
        return self.root.get(group)


def read_groups(file: Path) -> Groups:
    """Read the file; UsageRefused says what is wrong with it."""
    try:
        groups = Groups.model_validate(yaml.safe_load(file.read_text()))
    except OSError as error:
        raise UsageRefused(f"ARKLINE_OIDC_GROUPS: {file} cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise UsageRefused(f"ARKLINE_OIDC_GROUPS: {file} is not YAML: {error}") from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise UsageRefused(f"ARKLINE_OIDC_GROUPS: {file}, {place}: {first['msg']}") from error
    if not groups.root:
        raise UsageRefused(f"ARKLINE_OIDC_GROUPS: {file} names no group, so that nobody could log in")
    return groups
