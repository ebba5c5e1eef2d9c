"""The acting person: every verb names the principal behind it and checks the principal's rights."""

from datetime import datetime
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from pipeline import codes
from pipeline.errors import ArklineError

LOCAL = "local:"
"""Prefix of the identity of a command-line user, who has an account on the machine and no token."""


NAMED = 20
"""Maximum number of the principal's collections in a refusal, which names no others."""


class Role(StrEnum):
    """The rights of a principal; a role includes the roles above it in this list."""

    VIEWER = "viewer"
    DEPOSITOR = "depositor"
    OPERATOR = "operator"
    ADMIN = "admin"

    def includes(self, other: "Role") -> bool:
        """True if a principal of this role may do what needs `other`.

        >>> Role.ADMIN.includes(Role.OPERATOR), Role.VIEWER.includes(Role.DEPOSITOR)
        (True, False)
        """
        ascending = list(Role)
        return ascending.index(self) >= ascending.index(other)


class Interface(StrEnum):
    """The interface through which a principal reached arkline."""

    CLI = "cli"
    API = "api"
    WEB = "web"
    WORKER = "worker"
    BEAT = "beat"


class Forbidden(ArklineError):
    code = codes.FORBIDDEN


class Principal(BaseModel):
    """A person or a program with its rights; `collections` None means every collection."""

    model_config = ConfigDict(frozen=True)

    name: str = Field(min_length=1, max_length=255)
    role: Role
    collections: frozenset[str] | None = None
    interface: Interface
    expires: datetime | None = None
    """When the rights end, if that is known."""
    request_id: str | None = None
    """The id of the API's or the page's request by which the principal acts."""

    @property
    def identity(self) -> str:
        """The owner of idempotency keys.

        A person may repeat a submission from another host on the command line, so the host is ignored there.
        """
        if self.interface is Interface.CLI:
            return f"{LOCAL}{self.name.partition('@')[0]}"
        return f"token:{self.name}"

    def within(self, limit: "Principal") -> "Principal":
        """This principal, with none of the rights that `limit` does not have."""
        given = [one.collections for one in (self, limit) if one.collections is not None]
        return self.model_copy(
            update={
                "role": self.role if limit.role.includes(self.role) else limit.role,
                "collections": frozenset.intersection(*given) if given else None,
                "expires": min(filter(None, (self.expires, limit.expires)), default=None),
            }
        )

    @property
    def is_local(self) -> bool:
        """Whether the principal has an account of the machine, and no token."""
        return self.interface is Interface.CLI

    def require(self, role: Role, action: str, collection: str | None = None) -> None:
        """Raise Forbidden unless the principal has the role for this collection or, without one, for all."""
        if not self.role.includes(role):
            raise Forbidden(
                f"{self.name} must not {action}: this needs the role {role}, and {self.name} has the role "
                f"{self.role}"
            )
        if self.collections is None or collection in self.collections:
            return
        where = f"collection {collection}" if collection else "all collections"
        own = sorted(self.collections)
        more = f" and {len(own) - NAMED} more" if len(own) > NAMED else ""
        raise Forbidden(
            f"{self.name} must not {action}: this needs rights for {where}, and {self.name} has rights for "
            f"{', '.join(own[:NAMED]) or 'none'}{more}"
        )

    def sees(self, collection: str, owner: str) -> bool:
        """Whether the principal may see what this owner submitted to this collection."""
        if self.collections is not None and collection not in self.collections:
            return False
        return self.role is not Role.DEPOSITOR or owner == self.identity

    @property
    def sees_fleet(self) -> bool:
        """Whether the principal sees every collection, and therefore workers, servers and storage."""
        return self.role is not Role.DEPOSITOR and self.collections is None
