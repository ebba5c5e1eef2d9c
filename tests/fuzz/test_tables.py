"""Manifests, as Checkm and as tables: what becomes of them can be kept and read back."""

from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import ArklineError
from pipeline.manifests.checkm import ManifestProfile, parse
from pipeline.manifests.from_csv import Converted, convert
from pipeline.manifests.split import Plan, PlannedJob, plan
from pipeline.records import Submission, SubmissionType
from pipeline.tables.content import TableUnreadable, arrange
from pipeline.tables.text import read_sheet
from tests.support.fuzzing import WORDS, lines, result_or_refusal
from zkstate import codec

PROFILES = st.sampled_from(list(ManifestProfile))
BATCHES = st.sampled_from([kind for kind in SubmissionType if "batch" in kind])
URLS = st.sampled_from(
    ["https://x.edu/a.zip", "http://../x", "http://[", "https://u:p@x.edu/a", "ftp://x/a", "//x"]
)
CELLS = st.one_of(
    URLS, WORDS, st.sampled_from(["a.zip", "md5", "d41d8cd98f00b204e9800998ecf8427e", "ark:/99999/x", "2020"])
)
COLUMNS = sorted({column for profile in ManifestProfile for column in profile.columns})


def rows(separator: str) -> st.SearchStrategy[bytes]:
    cells = st.lists(CELLS, min_size=1, max_size=13).map(separator.join)
    return lines(cells, st.sampled_from(["#%eof\n", "#%checkm_0.7\n", '"', separator]))


TABLES = st.tuples(
    st.one_of(
        PROFILES.map(lambda profile: ",".join(profile.columns)),
        st.lists(st.sampled_from(COLUMNS)).map(",".join),
    ),
    rows(","),
).map(lambda pair: pair[0].encode() + b"\n" + pair[1])


@given(TABLES, PROFILES)
def test_a_table_becomes_a_manifest_or_a_list_of_problems(data: bytes, profile: ManifestProfile) -> None:
    result = result_or_refusal(lambda: convert(arrange(read_sheet(data)), profile))

    assert isinstance(result, Converted | TableUnreadable)
    if isinstance(result, Converted):
        manifest = result.manifest()
        assert (manifest is None) is any(problem.severity == "error" for problem in result.problems)
        assert manifest is None or len(parse(manifest, "it", profile, case_fold=False).rows) == len(
            result.rows
        )


@given(rows(" | "), BATCHES)
def test_the_jobs_of_a_manifest_can_be_kept(data: bytes, kind: SubmissionType) -> None:
    submission = Submission(profile_name="demo", payload_url="https://x.edu/m.checkm", type=kind)

    result = result_or_refusal(lambda: plan(submission, lambda url, limit: data, len(data)))

    if not isinstance(result, ArklineError):
        assert isinstance(result, Plan)
        for job in result.jobs:
            assert codec.decode(PlannedJob, codec.encode(job), "/x") == job


@given(st.one_of(URLS, WORDS), st.sampled_from(list(SubmissionType)), WORDS)
def test_a_submission_of_any_url_and_name_is_refused_or_kept(
    url: str, kind: SubmissionType, name: str
) -> None:
    def submitted() -> Submission | None:
        try:
            return Submission(profile_name="demo", payload_url=url, type=kind, payload_filename=name)
        except ValueError:
            return None

    submission = result_or_refusal(submitted)

    if isinstance(submission, Submission):
        assert codec.decode(Submission, codec.encode(submission), "/x") == submission
        result_or_refusal(lambda: plan(submission, lambda address, limit: b"", 100))
