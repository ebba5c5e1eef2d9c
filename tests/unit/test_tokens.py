from datetime import datetime, timedelta
from pathlib import Path

import pytest

from operations import tokens
from operations.tokens import Authenticator, InvalidToken, create_token, list_tokens, revoke
from pipeline import codes
from pipeline.errors import UsageRefused
from pipeline.inventory.sql import SqlInventory, open_inventory
from pipeline.inventory.tokens import TokenEntry, insert_token
from pipeline.principal import Forbidden, Interface, Principal, Role
from pipeline.records import now
from tests.support.errors import raises_code
from tests.support.operators import ANN


@pytest.fixture
def inventory(tmp_path: Path) -> SqlInventory:
    return open_inventory(f"sqlite:///{tmp_path / 'inventory.sqlite'}")


def test_a_token_names_its_principal(inventory: SqlInventory) -> None:
    new = create_token(inventory, ANN, "scans", Role.DEPOSITOR, ["harbour"])

    principal = Authenticator(lambda: inventory).authenticate(new.token, Interface.API)

    assert principal.name == "scans"
    assert principal.role is Role.DEPOSITOR
    assert principal.collections == frozenset({"harbour"})
    assert principal.identity == "token:scans"


def test_the_database_does_not_have_the_token(inventory: SqlInventory, tmp_path: Path) -> None:
    new = create_token(inventory, ANN, "scans", Role.VIEWER)
    inventory.database.close()

    stored = b"".join(file.read_bytes() for file in tmp_path.iterdir())

    assert new.token.encode() not in stored
    assert new.token[4:36].encode() not in stored
    assert new.token not in repr(new)


def test_a_revoked_token_is_refused(inventory: SqlInventory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "REMEMBERED_SECONDS", 0.0)
    new = create_token(inventory, ANN, "scans", Role.VIEWER)
    elsewhere = Authenticator(lambda: inventory)
    elsewhere.authenticate(new.token, Interface.API)

    revoke(inventory, ANN, "scans")

    with pytest.raises(InvalidToken, match="scans was revoked"):
        elsewhere.authenticate(new.token, Interface.API)


def test_revoking_a_token_again_keeps_who_revoked_it_first(inventory: SqlInventory) -> None:
    create_token(inventory, ANN, "scans", Role.VIEWER)
    first = revoke(inventory, ANN, "scans")

    again = revoke(inventory, ANN.model_copy(update={"name": "bob"}), "scans")

    assert again == first
    assert again.revoked_by == ANN.name


def test_a_mistyped_token_is_named_as_such_without_being_repeated(inventory: SqlInventory) -> None:
    token = create_token(inventory, ANN, "scans", Role.VIEWER).token
    mistyped = token[:10] + ("a" if token[10] != "a" else "b") + token[11:]

    with pytest.raises(InvalidToken, match="mistyped") as refused:
        Authenticator(lambda: inventory).authenticate(mistyped, Interface.API)

    assert mistyped not in str(refused.value)


@pytest.mark.parametrize("text", ["", "secret", "ark_", "ark_" + "a" * 500, "ark:/99999/fk4"])
def test_a_text_that_is_no_token_is_refused(inventory: SqlInventory, text: str) -> None:
    with pytest.raises(InvalidToken, match="not a token"):
        Authenticator(lambda: inventory).authenticate(text, Interface.API)


def test_a_name_is_not_used_twice_not_even_after_its_token_was_revoked(inventory: SqlInventory) -> None:
    create_token(inventory, ANN, "scans", Role.VIEWER)
    revoke(inventory, ANN, "scans")

    with pytest.raises(UsageRefused, match="is or was a token named scans"):
        create_token(inventory, ANN, "scans", Role.ADMIN)


def test_only_an_administrator_handles_tokens(inventory: SqlInventory) -> None:
    operator = Principal(name="op", role=Role.OPERATOR, interface=Interface.API)

    with pytest.raises(Forbidden, match="needs the role admin"):
        create_token(inventory, operator, "scans", Role.VIEWER)
    with pytest.raises(Forbidden):
        list_tokens(inventory, operator)
    with pytest.raises(Forbidden):
        revoke(inventory, operator, "scans")


def test_a_token_that_does_not_exist_cannot_be_revoked(inventory: SqlInventory) -> None:
    with raises_code(codes.NO_SUCH_TOKEN, match="no token named scans"):
        revoke(inventory, ANN, "scans")


def test_the_last_use_is_listed(inventory: SqlInventory) -> None:
    new = create_token(inventory, ANN, "scans", Role.VIEWER)
    assert list_tokens(inventory, ANN)[0].used is None

    Authenticator(lambda: inventory).authenticate(new.token, Interface.API)

    assert list_tokens(inventory, ANN)[0].used is not None


@pytest.mark.parametrize("name", ["", "a b", "../x", "ä", "x" * 101])
def test_a_name_that_does_not_fit_a_url_is_refused(inventory: SqlInventory, name: str) -> None:
    with pytest.raises(UsageRefused, match="not a name for a token"):
        create_token(inventory, ANN, name, Role.VIEWER)


def login_of(
    inventory: SqlInventory, credential: str, role: Role, expires: datetime, name: str = "anna on lab"
) -> str:
    """The token of a login that anna allowed."""
    token = tokens.token_of(name.encode().ljust(20)[:20])
    entry = TokenEntry(
        name=name,
        hash=tokens.hash_of(token),
        role=role,
        collections=frozenset({"harbour", "mole"}),
        created=now(),
        created_by="anna",
        expires=expires,
        person="anna",
        credential=credential,
    )
    assert insert_token(inventory, entry)
    return token


def test_the_token_of_a_login_has_the_rights_that_its_person_has_too(inventory: SqlInventory) -> None:
    person = Principal(
        name="oidc:anna",
        role=Role.DEPOSITOR,
        collections=frozenset({"mole", "pier"}),
        interface=Interface.WEB,
    )
    soon = now() + timedelta(hours=12)
    token = login_of(inventory, "oidc:session", Role.OPERATOR, soon)

    principal = Authenticator(lambda: inventory, lambda _: person).authenticate(token, Interface.API)

    assert (principal.name, principal.identity) == ("anna", "token:anna")
    assert (principal.role, principal.collections) == (Role.DEPOSITOR, frozenset({"mole"}))
    assert (principal.expires, principal.interface) == (soon, Interface.API)


def test_the_token_of_a_login_ends_with_the_session_of_the_provider(inventory: SqlInventory) -> None:
    token = login_of(inventory, "oidc:session", Role.VIEWER, now() + timedelta(days=1))

    def ended(_: str) -> Principal:
        raise InvalidToken("the login is over")

    with pytest.raises(InvalidToken, match="is over"):
        Authenticator(lambda: inventory, ended).authenticate(token, Interface.API)


def test_the_token_of_a_login_expires_and_then_leaves_the_list(inventory: SqlInventory) -> None:
    parent = create_token(inventory, ANN, "anna", Role.VIEWER)
    token = login_of(inventory, tokens.hash_of(parent.token), Role.VIEWER, now() - timedelta(seconds=1))
    with pytest.raises(InvalidToken, match=r"expired on .*: log in again"):
        Authenticator(lambda: inventory).authenticate(token, Interface.API)

    create_token(inventory, ANN, "bert", Role.VIEWER)

    assert [entry.name for entry in list_tokens(inventory, ANN)] == ["anna", "bert"]


def test_a_login_at_the_pages_says_when_the_session_of_the_provider_ends(inventory: SqlInventory) -> None:
    logins = tokens.Logins(lambda: inventory, lambda _: ANN)

    at_provider = logins.principal(logins.begin("oidc:anna", "oidc:session"))
    by_token = logins.principal(logins.begin("anna", "0" * 64))

    assert at_provider.expires is not None
    assert timedelta(hours=11) < at_provider.expires - now() <= timedelta(hours=12)
    assert by_token.expires is None
