"""ARKs as NOIDs: a number spelled in letters that form no words, with a check character at the end.

The blade follows the mask MASK: `e` is one of 29 characters (digits and consonants without `l` and `y`),
`d` a digit. The mask holds CAPACITY numbers; larger ones get further `e` characters in front, as in NOID's
`z` templates, so that no counter overflows and no blade repeats.

The check character covers `NAAN/name`. It detects every single wrong character and every swap of two
adjacent characters among the 29, as long as `NAAN/name` has fewer than 28 characters in front of it.
"""

import math

ALPHABET = "0123456789bcdfghjkmnpqrstvwxz"
BASE = len(ALPHABET)
MASK = "eedeeded"
"""At most two letters are adjacent, so that no blade looks like a word."""

_WEIGHT = {"e": BASE, "d": 10}
_VALUE = {character: value for value, character in enumerate(ALPHABET)}


CAPACITY = math.prod(_WEIGHT[kind] for kind in MASK)
"""The count of numbers that fit the mask: 29^5 * 10^3 = 20,511,149,000."""


def blade(number: int) -> str:
    """Encode `number` in the NOID alphabet; every number from 0 gives a different text."""
    if number < 0:
        raise ValueError(f"{number} is negative: the counter of identifiers starts at 0")
    letters = []
    for kind in reversed(MASK):
        number, digit = divmod(number, _WEIGHT[kind])
        letters.append(ALPHABET[digit])
    while number:
        number, digit = divmod(number, BASE)
        letters.append(ALPHABET[digit])
    return "".join(reversed(letters))


def check_character(text: str) -> str:
    """The sum of each character's value times its position from 1, modulo 29; other characters count 0."""
    total = sum(place * _VALUE.get(character, 0) for place, character in enumerate(text, 1))
    return ALPHABET[total % BASE]


def spell(naan: str, shoulder: str, number: int) -> str:
    """The ARK of `number` under the shoulder, with its check character."""
    name = shoulder + blade(number)
    return f"ark:/{naan}/{name}{check_character(f'{naan}/{name}')}"


def number_of(naan: str, shoulder: str, ark: str) -> int | None:
    """The number that `spell` turns into this ARK; None if there is none below CAPACITY.

    >>> number_of("99999", "fk4", spell("99999", "fk4", 41))
    41
    """
    head = f"ark:/{naan}/{shoulder}"
    letters = ark.removeprefix(head)[:-1]
    if not ark.startswith(head) or len(letters) != len(MASK):
        return None
    number = 0
    for letter, kind in zip(letters, MASK, strict=True):
        digit = _VALUE.get(letter, BASE)
        if digit >= _WEIGHT[kind]:
            return None
        number = number * _WEIGHT[kind] + digit
    return number if spell(naan, shoulder, number) == ark else None
