"""Requests made from the document of the API: no answer is a server error, or is not in the document."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, ClassVar

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase
from hypothesis.errors import Unsatisfiable
from hypothesis.stateful import run_state_machine_as_test
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.config import GenerationConfig, ProjectConfig, ProjectsConfig, SchemathesisConfig

from pipeline.principal import Role
from pipeline.settings import Settings
from tests.support import api_document, cli, planting
from tests.support.web import Caller, new_token
from zkstate.connection.session import connect

load_all_checks()
ANSWERS = CHECKS.get_by_names(
    ["status_code_conformance", "content_type_conformance", "response_schema_conformance"]
)
EXAMPLES = {GenerationMode.POSITIVE: 2, GenerationMode.NEGATIVE: 2}
"""Requests of each operation that has an input: data as the document describes it, and other data."""

LEFT_OUT = "/events$|^/v1/workers/|^/v1/login/end$"
"""A stream does not end; a worker that does not answer is waited for; the token of the caller would end."""

DOCUMENT = api_document.document()
_PAIR = DOCUMENT["components"]["schemas"]["ProfileRenewal"]["properties"]["changes"]["additionalProperties"]
_PAIR["items"] = _PAIR.pop("prefixItems")[0]  # schemathesis refuses an answer that `prefixItems` describe
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT).exclude(path_regex=LEFT_OUT)

WALKED = schemathesis.openapi.from_dict(
    DOCUMENT,
    config=SchemathesisConfig(
        projects=ProjectsConfig(
            default=ProjectConfig(generation=GenerationConfig(with_security_parameters=False))
        )
    ),
).exclude(path_regex=f"{LEFT_OUT}|^/v1/(queue|workers|audit|check)$")
"""With the right token alone: after some wrong ones, a process answers nobody for a minute. Without the
operations that ask the workers, and those that read the whole record."""

MOST_SEEDS = 12
FOLLOWED = 3
"""Operations reached by a link, after which the walks end: where a walk goes depends on the answers."""

STEPS = 15
"""Few examples for each seed: what a step may follow depends on the answers, and Hypothesis refuses a test
whose examples begin alike and continue differently."""


def _valid(result: Any) -> Any:
    return result.ok()


OPERATIONS = [_valid(result) for result in SCHEMA.get_all_operations()]


def bounded(examples: int) -> hypothesis.settings:
    return hypothesis.settings(
        max_examples=examples,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        database=None,
        deadline=None,
        derandomize=True,
    )


@pytest.fixture(scope="module")
def token(module_settings: Settings) -> str:
    with connect(module_settings) as session:
        planting.split_batch(session, 3)
    return new_token(module_settings, "schema", Role.ADMIN)


@pytest.fixture(scope="module")
def admin(module_settings: Settings, token: str) -> Iterator[Caller]:
    """In a process of its own: kazoo's threads draw random numbers, which hypothesis refuses."""
    with cli.start(module_settings, "web", "--port", "0", "--json", ARKLINE_LOG_LEVEL="ERROR") as process:
        assert process.stdout is not None
        answer = "".join(process.stdout.readline() for _ in range(3))
        yield Caller(json.loads(answer)["url"], token)


def options(admin: Caller) -> dict[str, Any]:
    return {"base_url": admin.url, "headers": {"Authorization": f"Bearer {admin.token}"}}


def without_dry_run(case: Any) -> None:
    """A dry run of a deposit asks foreign hosts."""
    if case.query and case.query.get("dry_run"):
        case.query = {**case.query, "dry_run": False}


def check(case: Any, answer: Any) -> None:
    assert answer.status_code < 500, f"{case.operation.label}: {answer.status_code} {answer.text}"
    case.validate_response(answer, checks=ANSWERS)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)
def test_an_answer_is_in_the_document_and_no_server_error(operation: Any, admin: Caller) -> None:
    has_input = any((operation.path_parameters, operation.query, operation.body))

    def ask(mode: GenerationMode, examples: int) -> None:
        @bounded(examples)
        @hypothesis.given(case=operation.as_strategy(mode))
        def send(case: Any) -> None:
            without_dry_run(case)
            check(case, case.call(**options(admin)))

        send()

    if not has_input:  # every request is the same one: `/v1/queue` waits six seconds for workers each time
        ask(GenerationMode.POSITIVE, 1)
        return
    ask(GenerationMode.POSITIVE, EXAMPLES[GenerationMode.POSITIVE])
    with suppress(Unsatisfiable):  # every text is valid for some parameters
        ask(GenerationMode.NEGATIVE, EXAMPLES[GenerationMode.NEGATIVE])


def walk_of(caller: Caller) -> Any:
    """A kind of walks: operations one after another; those that an answer links to get what it says of them.

    Not made with the module: schemathesis has all objects of the process searched meanwhile.
    """

    class Walk(WALKED.as_state_machine()):  # type: ignore[misc]
        answers: ClassVar[Counter[tuple[str, int]]] = Counter()

        def get_call_kwargs(self, case: Any) -> dict[str, Any]:
            return options(caller)

        def before_call(self, case: Any) -> None:
            without_dry_run(case)

        def validate_response(self, response: Any, case: Any, *_: Any, **__: Any) -> None:
            self.answers[case.operation.label, response.status_code] += 1
            check(case, response)

    return Walk


def followed(answers: Counter[tuple[str, int]]) -> set[str]:
    return {label for label, status in answers if "{" in label and status == 200}


def test_every_answer_of_a_walk_along_the_links_is_in_the_document(
    admin: Caller,
) -> None:
    walk = walk_of(admin)
    seeds = iter(range(MOST_SEEDS))
    while len(followed(walk.answers)) < FOLLOWED and (seed := next(seeds, None)) is not None:
        run_state_machine_as_test(
            hypothesis.seed(seed)(walk),
            settings=hypothesis.settings(bounded(3), stateful_step_count=STEPS, derandomize=False),
        )

    assert len(followed(walk.answers)) >= FOLLOWED, walk.answers
