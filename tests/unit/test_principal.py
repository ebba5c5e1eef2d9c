"""Who may do what: roles include the lower ones, and rights may be limited to collections."""

import pytest

from pipeline.principal import NAMED, Forbidden, Interface, Principal, Role


def principal(role: Role, *collections: str, interface: Interface = Interface.API) -> Principal:
    limited = frozenset(collections) or None
    return Principal(name="ann@desk", role=role, collections=limited, interface=interface)


@pytest.mark.parametrize("needed", list(Role))
@pytest.mark.parametrize("role", list(Role))
def test_a_role_includes_the_lower_roles_and_no_higher_one(role: Role, needed: Role) -> None:
    ranks = [Role.VIEWER, Role.DEPOSITOR, Role.OPERATOR, Role.ADMIN]

    assert role.includes(needed) == (ranks.index(role) >= ranks.index(needed))


def test_a_refusal_names_the_role_that_is_needed() -> None:
    with pytest.raises(Forbidden, match="must not resume jid1: this needs the role operator"):
        principal(Role.VIEWER).require(Role.OPERATOR, "resume jid1", "demo")


def test_rights_for_one_collection_end_at_the_next() -> None:
    demo = principal(Role.OPERATOR, "demo")

    demo.require(Role.OPERATOR, "resume jid1", "demo")
    with pytest.raises(Forbidden, match="rights for collection maps"):
        demo.require(Role.OPERATOR, "resume jid1", "maps")
    with pytest.raises(Forbidden, match="rights for all collections"):
        demo.require(Role.OPERATOR, "pause the queue")


def test_no_collection_is_not_every_collection() -> None:
    nothing = Principal(name="ann", role=Role.ADMIN, collections=frozenset(), interface=Interface.API)

    with pytest.raises(Forbidden):
        nothing.require(Role.VIEWER, "see jid1", "demo")


def test_the_host_is_no_part_of_a_persons_identity_at_the_command_line() -> None:
    assert principal(Role.ADMIN, interface=Interface.CLI).identity == "local:ann"
    assert principal(Role.ADMIN).identity == principal(Role.VIEWER, "a").identity == "token:ann@desk"


def test_who_mistypes_a_collection_learns_the_own_ones_and_no_other() -> None:
    dana = Principal(
        name="dana", role=Role.DEPOSITOR, collections=frozenset({"maps", "demo"}), interface=Interface.API
    )

    with pytest.raises(Forbidden, match=r"for collection nosuch, and dana has rights for demo, maps$"):
        dana.require(Role.DEPOSITOR, "submit to collection nosuch", "nosuch")


def test_a_refusal_names_only_so_many_collections() -> None:
    own = frozenset(f"c{number:02d}" for number in range(NAMED + 3))
    dana = Principal(name="dana", role=Role.DEPOSITOR, collections=own, interface=Interface.API)

    with pytest.raises(Forbidden, match=r"rights for c00, .*c19 and 3 more$"):
        dana.require(Role.DEPOSITOR, "submit", "nosuch")
