"""The tokens by which objects are found: made here, so that both SQL databases find the same.

Rule: a text becomes its words and their parts, in lower case and without accents: `img_003.jpg` is found by
itself, by `img`, `003` and `jpg`. Every term of a query may be the beginning of a word, so a word has all its
beginnings as tokens. The databases look a token up; to merge the objects of all words with one beginning
would take seconds among a million objects.

Other tokens begin with a character that no word begins with: `^` the beginning of a title's word, `=` an
identifier, `#` a collection, `@` a depositor; the last three as digests.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2s

from pipeline.names import PRODUCER, NotAnArk, canonical_ark

WORD_LIMIT = 64
"""Characters; what exceeds them is not compared."""

SHORTEST = 2
"""Characters of a beginning that finds longer words; a single character finds only itself."""

DIGEST_LENGTH = 32
"""Characters of a file's digest that are compared: 128 bits."""

_SEPARATORS = re.compile(r"[\s,;]+")
_PARTS = re.compile(r"[\W_]+")
_DIGEST = re.compile(r"(?:[a-z0-9-]+:)?([0-9a-f]{32,128})")


@dataclass(frozen=True)
class Findable:
    """What an object is found by, of one of its versions."""

    ark: str
    local_ids: tuple[str, ...]
    erc: Iterable[tuple[str, str]]
    """(element, value)."""
    texts: Iterable[str]
    """Collections, the submitter, the deposit."""
    files: Iterable[tuple[str, Iterable[str | None]]]
    """(logical path, digests with or without their algorithm); only the depositor's files count."""
    profile: str
    depositor: str | None


def tokens_of(version: Findable) -> set[str]:
    """All tokens of an object's version."""
    erc = tuple(version.erc)
    title = set(_words_of(value for element, value in erc if element == "what"))
    described = (value for element, value in erc if element in ("who", "when"))
    words = title.union(_words_of((version.ark, *version.local_ids, *described, *version.texts)))
    tokens = {_digest("#", version.profile)}
    for path, digests in version.files:
        if path.startswith(PRODUCER):
            words.update(words_of(path.removeprefix(PRODUCER)))
            tokens.update(compared_digests(digests))
    for word in words:
        tokens.update(_beginnings(word))
    for word in title:
        tokens.update([f"^{beginning}" for beginning in _beginnings(word)])
    tokens.update(map(identifier, (version.ark, version.ark.split("/", 2)[-1], *version.local_ids)))
    if version.depositor:
        tokens.add(of_depositor(version.depositor))
    return tokens


def terms_of(query: str) -> tuple[str, ...]:
    """The tokens that an object has if it has all terms of the query."""
    return tuple(dict.fromkeys(_term(word) for word in _query_words(query)))


def title_terms(terms: Iterable[str]) -> tuple[str, ...]:
    """The tokens that an object has if its title has all these terms."""
    return tuple(f"^{term}" for term in terms)


def identifier(text: str) -> str:
    """The token of an ARK, with or without its prefix, or of a local id."""
    with suppress(NotAnArk):
        text = canonical_ark(text)
    return _digest("=", " ".join(_folded(text).split()))


def of_collection(profile: str) -> str:
    return _digest("#", profile)


def of_depositor(identity: str) -> str:
    return _digest("@", identity)


def words_of(text: str) -> Iterator[str]:
    """The words of a text, their segments between slashes, and their parts."""
    for word in _whole_words(text):
        shorter = () if word.isalnum() else (*map(_stripped, word.split("/")), *_PARTS.split(word))
        yield from (one[:WORD_LIMIT] for one in (word, *shorter) if one)


def compared_digests(digests: Iterable[str | None]) -> Iterator[str]:
    """The compared part of each digest."""
    for digest in digests:
        if digest:
            yield digest.rpartition(":")[2].lower()[:DIGEST_LENGTH]


def _words_of(texts: Iterable[str]) -> Iterator[str]:
    return (word for text in texts for word in words_of(text))


def _query_words(query: str) -> Iterator[str]:
    for given in query.split():
        try:
            yield canonical_ark(given).lower()
        except NotAnArk:
            yield from _whole_words(given)


def _whole_words(text: str) -> Iterator[str]:
    return filter(None, map(_stripped, _SEPARATORS.split(_folded(text))))


def _term(word: str) -> str:
    digest = _DIGEST.fullmatch(word)
    return digest[1][:DIGEST_LENGTH] if digest else word[:WORD_LIMIT]


def _beginnings(word: str) -> list[str]:
    return [word[:length] for length in range(min(SHORTEST, len(word)), len(word) + 1)]


def _stripped(word: str) -> str:
    """The word from its first to its last letter or digit."""
    if word[:1].isalnum() and word[-1:].isalnum():
        return word
    places = [place for place, character in enumerate(word) if character.isalnum()]
    return word[places[0] : places[-1] + 1] if places else ""


def _folded(text: str) -> str:
    """In lower case, without accents, in compatible characters; control characters separate words."""
    if text.isascii() and text.isprintable():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", text).casefold())
    letters = (c if c.isprintable() else " " for c in decomposed if unicodedata.category(c) != "Mn")
    return unicodedata.normalize("NFKC", "".join(letters)).lower()


@lru_cache(maxsize=1024)
def _digest(kind: str, text: str) -> str:
    return kind + blake2s(text.encode(errors="replace"), digest_size=16).hexdigest()
