"""Objects by a text: by their identifier first, then by their title, then by all that is recorded of them.

Within each of the three, the object that was entered last comes first.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import ColumnElement, Connection, and_, bindparam, select

from pipeline.inventory.search import by_findings, index
from pipeline.inventory.search.by_findings import FindingSearch, FoundObject
from pipeline.inventory.search.index import TokenQuery
from pipeline.inventory.search.tokens import (
    compared_digests,
    identifier,
    of_collection,
    of_depositor,
    terms_of,
    title_terms,
    words_of,
)
from pipeline.inventory.sight import Sight, sees
from pipeline.inventory.tables import files, objects, versions
from pipeline.names import PRODUCER

_NEWEST = 1 << 60
"""Above the keys of all objects."""

_RANKS = 4
"""A position is key * _RANKS + rank."""

FILES_READ = 1_000
"""Files of an object that are compared with the query, to show the one by which the object was found."""


@dataclass(frozen=True)
class Hit:
    key: int
    position: int
    """After which the search continues."""


def hits(
    connection: Connection, query: str, search: FindingSearch, sight: Sight, limit: int, after: int = 0
) -> tuple[Hit, ...]:
    """Objects that have all terms of the query, meet the conditions and are seen; none without a term."""
    terms = terms_of(query)
    if not terms:
        return ()

    def condition(key: ColumnElement[int]) -> ColumnElement[bool]:
        return and_(sees(sight, key), by_findings.meets(connection, search, key))

    matching: list[Hit] = []
    before, first = divmod(after, _RANKS) if after else (_NEWEST, 0)
    ranks = ((identifier(query),), title_terms(terms), terms)
    for rank in range(first, len(ranks)):
        common = rank > 0 and sight.depositor is None
        required = _narrowed(TokenQuery(ranks[rank], but=ranks[:rank], common=common), sight)
        rows = index.newest(connection, required, condition, before, limit - len(matching))
        matching += (Hit(key, key * _RANKS + rank) for key in rows)
        if len(matching) == limit:
            break
        before = _NEWEST
    return tuple(matching)


def _narrowed(required: TokenQuery, sight: Sight) -> TokenQuery:
    """So that the index leaves out most of what is not seen; `sees` decides."""
    if sight.depositor is not None:
        own = of_depositor(sight.depositor)
        but = tuple((own, *tokens) for tokens in required.but)
        return replace(required, all=(own, *required.all), but=but)
    if sight.collections is not None:
        return replace(required, any=tuple(map(of_collection, sorted(sight.collections))))
    return required


def arks_identified(connection: Connection, name: str) -> tuple[str, ...]:
    """The ARKs of the objects with this ARK, with or without its prefix, or this local id."""
    required = TokenQuery((identifier(name),))
    keys = index.newest(connection, required, lambda key: key > 0, _NEWEST, FILES_READ)
    query = select(objects.c.ark).where(objects.c.id.in_(keys)).order_by(objects.c.id)
    return tuple(connection.scalars(query))


def found_by(connection: Connection, query: str, shown: Sequence[FoundObject]) -> tuple[FoundObject, ...]:
    """The objects, each with the file that has the terms that its description does not have."""
    terms = terms_of(query)
    return tuple(replace(one, file=_file(connection, one, terms)) for one in shown)


_FILES = (
    select(*index.NAME_AND_DIGESTS)
    .join(versions, versions.c.id == files.c.inv_version_id)
    .join(objects, objects.c.id == versions.c.inv_object_id)
    .where(objects.c.ark == bindparam("ark"), files.c.pathname.like(f"{PRODUCER}%"))
    .order_by(versions.c.number.desc(), files.c.id)
    .limit(FILES_READ)
)
"""The first deposited files of an object, those of its last version first."""


def _file(connection: Connection, one: FoundObject, terms: Iterable[str]) -> str:
    described = [*_words(one.ark, one.title, one.creator, one.date, one.collection)]
    left = [term for term in terms if not _has(described, term)]
    if not left:
        return ""
    for path, *digests in connection.execute(_FILES, {"ark": one.ark}):
        name = str(path).removeprefix(PRODUCER)
        words = [*_words(name), *compared_digests(digests)]
        if all(_has(words, term) for term in left):
            return name
    return ""


def _words(*texts: str) -> Iterator[str]:
    return (word for text in texts for word in words_of(text))


def _has(words: Iterable[str], term: str) -> bool:
    return any(word.startswith(term) if len(term) > 1 else word == term for word in words)
