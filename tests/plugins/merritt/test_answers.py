"""Answers of Merritt's services: any status line, header and body."""

import json
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.settings import Settings
from plugins.merritt.http import MerrittHttp
from plugins.merritt.inventory import MerrittInventory
from plugins.merritt.settings import MerrittSettings
from plugins.merritt.storage import MerrittStorage
from tests.fuzz.test_answers import ARK, MANY, OWNER, VALUES, answers, finite
from tests.servers.raw_answer import RawAnswer
from tests.support.fuzzing import NUMBERS, WORDS, result_or_refusal

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), WORDS, NUMBERS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                [
                    *(
                        "ver:versionState",
                        "invloc:localContainerState",
                        "invv:versionsState",
                        "invloc:localID",
                    ),
                    *("invloc:exists", "invloc:primaryIdentifier", "ver:identifier", "invv:currentVersion"),
                ]
            ),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=8,
).map(lambda value: json.dumps(value).encode())
DEEP = st.integers(1, 100_000).map(lambda depth: b'{"invloc:localContainerState":' + b"[" * depth)
_FILE = '<file id="%s"><key>%s</key><size>%s</size><digestType>%s</digestType><digest>%s</digest></file>'
XML = st.tuples(
    WORDS, WORDS, VALUES, WORDS, WORDS, st.one_of(VALUES, st.just("1")), st.one_of(VALUES, WORDS)
).map(
    lambda values: (
        f'<objectInfo><object id="{ARK}"><versions><version id="{values[5]}"><manifest count="1" '
        f'created="{values[6]}">{_FILE % values[:5]}</manifest></version></versions></object></objectInfo>'
    ).encode("utf-8", "surrogatepass")
)


@pytest.fixture(scope="module")
def server() -> Iterator[RawAnswer]:
    with RawAnswer() as running:
        yield running


@pytest.fixture(scope="module")
def chosen(server: RawAnswer, tmp_path_factory: pytest.TempPathFactory) -> tuple[Settings, MerrittSettings]:
    own = MerrittSettings(
        storage_service_url=server.url, storage_service_node=1, inventory_service_url=server.url
    )
    return Settings(home=tmp_path_factory.mktemp("home"), read_timeout=5), own


@pytest.fixture(scope="module")
def inventory(chosen: tuple[Settings, MerrittSettings]) -> MerrittInventory:
    return MerrittInventory(*chosen, pause=0)


@MANY
@given(answer=answers(JSON, JSON, DEEP))
def test_the_answer_of_merritts_inventory_is_understood_or_refused(
    answer: bytes, server: RawAnswer, inventory: MerrittInventory
) -> None:
    server.answer = answer
    for ask in (lambda: inventory.local_ids_of(ARK), lambda: inventory.arks_of(OWNER, ("l",))):
        finite(result_or_refusal(ask))


@MANY
@given(answer=answers(JSON, XML, XML, DEEP))
def test_the_answer_of_merritts_storage_is_understood_or_refused(
    answer: bytes, server: RawAnswer, chosen: tuple[Settings, MerrittSettings]
) -> None:
    server.answer = answer
    asks: tuple[Callable[[], object], ...] = (
        lambda: MerrittStorage(*chosen, pause=0).versions_of(ARK),
        lambda: MerrittStorage(*chosen, pause=0).version_of(ARK, "jid0000000001"),
        lambda: MerrittHttp(*chosen, pause=0).post("jid0000000001", {}, "add"),
    )
    for ask in asks:
        finite(result_or_refusal(ask))
