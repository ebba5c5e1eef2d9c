import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pipeline.identifiers import noid
from tests.support import arks

numbers = st.one_of(st.integers(0, noid.CAPACITY * 29**2), st.integers(noid.CAPACITY - 3, noid.CAPACITY + 3))


def test_the_capacity_is_the_one_that_is_documented() -> None:
    assert noid.CAPACITY == 20_511_149_000


def test_the_first_numbers_are_spelled_with_the_mask() -> None:
    assert [noid.blade(number) for number in (0, 9, 10, 290)] == [
        "00000000",
        "00000009",
        "00000010",
        "00000100",
    ]


def test_the_number_after_the_last_that_fits_gets_one_more_character() -> None:
    assert noid.blade(noid.CAPACITY - 1) == "zz9zz9z9"
    assert noid.blade(noid.CAPACITY) == "100000000"


def test_a_negative_number_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        noid.blade(-1)


@given(st.sets(numbers, min_size=2))
def test_no_two_numbers_have_one_blade(some: set[int]) -> None:
    assert len({noid.blade(number) for number in some}) == len(some)


def test_consecutive_numbers_do_not_repeat() -> None:
    assert len({noid.blade(number) for number in range(50_000)}) == 50_000


@given(numbers)
def test_a_minted_ark_is_valid(number: int) -> None:
    assert arks.is_valid(noid.spell("99999", "fk4", number))


def test_the_check_character_agrees_with_the_published_example() -> None:
    # The example in the NOID documentation, section "NOID CHECK DIGIT ALGORITHM".
    assert noid.check_character("13030/xf93gt2") == "q"


@given(numbers, st.data())
def test_a_wrong_character_is_found(number: int, data: st.DataObject) -> None:
    ark = noid.spell("99999", "fk4", number)
    start = len("ark:/99999/fk4")
    place = data.draw(st.integers(start, len(ark) - 1))
    wrong = data.draw(st.sampled_from(noid.ALPHABET))
    assume(wrong != ark[place])

    assert not arks.is_valid(ark[:place] + wrong + ark[place + 1 :])


@given(numbers, st.data())
def test_a_wrong_digit_in_the_naan_is_found(number: int, data: st.DataObject) -> None:
    ark = noid.spell("99999", "fk4", number)
    place = data.draw(st.integers(len("ark:/"), len("ark:/99999") - 1))
    wrong = data.draw(st.sampled_from("012345678"))

    assert not arks.is_valid(ark[:place] + wrong + ark[place + 1 :])


@given(numbers, st.data())
def test_two_swapped_neighbours_are_found(number: int, data: st.DataObject) -> None:
    ark = noid.spell("99999", "fk4", number)
    place = data.draw(st.integers(len("ark:/99999/fk4"), len(ark) - 2))
    assume(ark[place] != ark[place + 1])

    assert not arks.is_valid(ark[:place] + ark[place + 1] + ark[place] + ark[place + 2 :])


def test_what_is_not_an_ark_is_not_valid() -> None:
    assert not arks.is_valid("fk4x")


@pytest.mark.parametrize("number", [0, 41, 999_999, noid.CAPACITY - 1])
def test_the_number_of_an_ark_is_the_one_that_it_spells(number: int) -> None:
    assert noid.number_of("99999", "fk4", noid.spell("99999", "fk4", number)) == number


@pytest.mark.parametrize(
    "ark",
    ["ark:/99999/fk4", "ark:/99999/fk4given", "ark:/12345/fk4000000019", "ark:/99999/fk4000000018"],
)
def test_an_ark_that_no_number_spells_has_none(ark: str) -> None:
    assert noid.number_of("99999", "fk4", ark) is None
