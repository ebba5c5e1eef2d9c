import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import names


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("", ()),
        (" ; ;", ()),
        ("a", ("a",)),
        ("a;a;b", ("a", "b")),
        (" a b ; c ", ("a b", "c")),
        ("b;a;b", ("b", "a")),
        ("doi:10.1%sc2; c", ("doi:10.1;2", "c")),
        ("localid;localid;localid;localidtwo;localidtwo", ("localid", "localidtwo")),
        ("localidfour; localidfive", ("localidfour", "localidfive")),
    ],
)
def test_local_ids_are_parted_trimmed_and_named_once(text: str, ids: tuple[str, ...]) -> None:
    assert names.parse_local_ids(text) == ids


def test_ids_of_the_form_come_before_those_of_the_metadata() -> None:
    merged = names.merge_local_ids(
        names.parse_local_ids("localidfour;localidfive;localidsix"),
        ["localid", "localidtwo"],
        ["localid", "", "localidthree"],
    )

    assert (
        names.write_local_ids(merged) == "localidfour;localidfive;localidsix;localid;localidtwo;localidthree"
    )


@given(
    st.lists(
        st.text(st.characters(exclude_characters="%"), min_size=1).filter(lambda each: each == each.strip())
    )
)
def test_what_is_written_reads_back(ids: list[str]) -> None:
    assert names.parse_local_ids(names.write_local_ids(ids)) == tuple(dict.fromkeys(ids))
