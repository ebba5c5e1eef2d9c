"""Names that depositors give: file names, ARKs, addresses of uploads, and texts without the secrets of URLs.

Rule: a name is used exactly as given, or refused; no name is corrected silently.

An upload is `upload:ID/NAME`, with NAME percent-encoded. Rule: a manifest may name files of its own upload
only: whoever may submit the manifest may submit them.

The depositor's own identifiers of an object (local ids) are a list in one text, `;` between them, `%sc` for
a `;`.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, unquote, urlsplit

from pipeline import codes
from pipeline.errors import ArklineError, UsageRefused

ARK_CHARACTERS = "A-Za-z0-9=~*+@_$%./"
"""The characters of an ARK's name, for a set in a pattern; a hyphen may stand anywhere and does not count."""

ARK_PATTERN = rf"^ark:/?\d{{5,9}}/[{ARK_CHARACTERS}-]{{1,200}}$"
"""An ARK as a primary identifier may be given: with the slash after `ark:` or, newer, without."""

SEGMENT_LIMIT = 255
"""Bytes of one segment in UTF-8: the limit of ext4, XFS, ZFS and APFS."""

NAME_LIMIT = 1024
"""Bytes of a whole name in UTF-8: an S3 key's limit, and well below PATH_MAX with our folders in front."""

DEPTH_LIMIT = 64
"""Segments of one name: limits the folders that a hostile list can create."""

PRODUCER = "producer/"
"""The folder of a depositor's files, in the working directory and in the stored object."""

COMPOSED_OTHERWISE = "differs only in how a letter is composed (Unicode NFC and NFD)"

CONTAINER_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2")

# Control characters, surrogates, and the two separators that end a line in some readers of lists.
_UNWRITABLE = frozenset({"Cc", "Cs", "Zl", "Zp"})
# Characters that a person does not see: they reorder the name on a screen, or make it look like another one.
# What people write names with stays: joiners, marks of direction, soft hyphens, the tags of flags.
_INVISIBLE = re.compile("[\u200b\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0001]")
_ARK = re.compile(rf"ark:/?(\d{{5,9}})/([{ARK_CHARACTERS}-]{{1,200}})", re.IGNORECASE)
_DOTS = re.compile(r"\.*")
_NOT_XML = "\ufffe\uffff"
"""Names are written into XML, which cannot contain these characters."""


class NotAnArk(UsageRefused):
    code = codes.NOT_AN_ARK


class UnsafeName(ArklineError):
    """A file name that would leave its folder, or that a file system cannot store."""


@dataclass(frozen=True)
class Clash:
    """Two names, by their position in the list, that cannot be in one folder, and why."""

    first: int
    second: int
    reason: str


def canonical_ark(text: str) -> str:
    """The canonical spelling: `ark:99999/fk4x` and `ARK:/99999/fk4-x` are `ark:/99999/fk4x`.

    Hyphens do not count in an ARK (draft-kunze-ark). A name with a segment that is empty or of dots alone is
    refused: such a name could leave the folder that is made of it.
    """
    return spellings(text)[0]


def spellings(text: str) -> tuple[str, ...]:
    """The canonical spelling, and then the spelling with hyphens, if the text has some.

    Objects of releases before 0.2.1 are known by the spelling with hyphens.
    """
    match = _ARK.fullmatch(text.strip())
    if match is None or any(_DOTS.fullmatch(segment) for segment in match[2].replace("-", "").split("/")):
        raise NotAnArk(f"'{text}' is not an ARK; expected the form ark:/99999/fk4abc")
    written = f"ark:/{match[1]}/{match[2]}"
    return tuple(dict.fromkeys((written.replace("-", ""), written)))


def is_ark(text: str) -> bool:
    try:
        return text.startswith("ark:") and text == text.strip() and bool(spellings(text))
    except NotAnArk:
        return False


def is_container(name: str) -> bool:
    """Whether the name has the suffix of a container that can be unpacked."""
    return name.lower().endswith(CONTAINER_SUFFIXES)


def name_in(url: str) -> str:
    """The last segment of the URL's path as a person would write it; empty if the path ends in a slash."""
    try:
        written = urlsplit(url).path.rpartition("/")[2]
    except ValueError:
        return ""
    try:
        name = unquote(written, errors="strict")
    except UnicodeDecodeError:
        return written
    return written if "/" in name else name


def printable(text: str, instead: str = "\N{REPLACEMENT CHARACTER}") -> str:
    """Without control characters, which could rewrite what a terminal shows; lines stay lines."""
    return "".join(c if c.isprintable() or c == "\n" else instead for c in text)


@lru_cache(maxsize=256)  # of our own files, which every object has, and of one file in several states
def safe_name(name: str, within: str = "", *, stored: bool = False) -> str:
    """The name, unchanged, if it is a relative path that is safe to write below a folder.

    `within`: the folder of the name, with its slash; it counts for the length. `stored`: the name is
    of an object that is stored already; early releases accepted invisible characters.
    """
    reason = _unsafe(name) or _too_long(within + name)
    if not reason and not stored and not name.isprintable() and (invisible := _INVISIBLE.search(name)):
        reason = f"has the invisible character U+{ord(invisible[0]):04X} in it"
    if reason:
        raise UnsafeName(f"file name {quote_name(name)} {reason}")
    return name


def without_unwritable(text: str) -> str:
    """The text without characters that no name may contain; spaces and joiners of all scripts are kept."""
    return _INVISIBLE.sub("", "".join(c for c in text if _unwritable(c) is None))


def composed_otherwise(name: str, names: Iterable[str]) -> str:
    """The one of `names` that differs only in how its letters are composed; empty if none does."""
    same = unicodedata.normalize("NFC", name)
    return next(
        (other for other in names if other != name and unicodedata.normalize("NFC", other) == same), ""
    )


def quote_name(name: str, limit: int = 200) -> str:
    """The name in quotes with unprintable characters escaped, cut so that a message stays readable.

    Without secrets: a URL may stand where a name should.
    """
    text = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in hide_secrets(name[:limit]))
    return f"'{text}{'...' if len(name) > limit else ''}'"


def _unsafe(name: str) -> str | None:
    """Why the name is refused; None if it is not."""
    if not name:
        return "is empty"
    if not name.isprintable() and (unwritable := _unwritable(name)):
        return f"has the unwritable character U+{ord(unwritable):04X} in it"
    if "\\" in name:
        return "has a backslash in it; folders are separated by '/'"
    if name.startswith("/"):
        return "is absolute; give a path relative to the object"
    return _unsafe_path(name.split("/"))


def _unsafe_path(segments: list[str]) -> str | None:
    if not all(segments):
        return "has an empty segment ('//' or a '/' at its end)"
    if not {".", ".."}.isdisjoint(segments):
        return "has a '.' or '..' segment; give the path itself"
    return None


def _unwritable(name: str) -> str | None:
    return next((c for c in name if unicodedata.category(c) in _UNWRITABLE or c in _NOT_XML), None)


def _too_long(name: str) -> str | None:
    if len(name) <= SEGMENT_LIMIT // 4 and name.count("/") < DEPTH_LIMIT:
        return None  # a character has four bytes at most
    segments = name.split("/")
    if len(segments) > DEPTH_LIMIT:
        return f"is more than {DEPTH_LIMIT} folders deep"
    if max(len(segment.encode()) for segment in segments) > SEGMENT_LIMIT:
        return f"has a segment of more than {SEGMENT_LIMIT} bytes"
    if len(name.encode()) > NAME_LIMIT:
        return f"is longer than {NAME_LIMIT} bytes"
    return None


class UsedNames:
    """The names used so far, to detect a clash with every further name.

    Names that differ only in how an accented letter is composed are the same name on some file systems,
    and so are, with `case_fold`, those that differ only in upper and lower case.
    """

    def __init__(self, case_fold: bool = True) -> None:
        self._case_fold = case_fold
        self._names: list[str] = []
        self._files: dict[str, int] = {}
        self._folders: dict[str, int] = {}

    def add(self, name: str) -> Clash | None:
        index = len(self._names)
        self._names.append(name)
        key = _key(name, self._case_fold)
        folders = tuple(_folders(key))
        clash = self._clash(index, key, folders)
        self._files.setdefault(key, index)
        for folder in folders:
            self._folders.setdefault(folder, index)
        return clash

    @property
    def count(self) -> int:
        """Files and the folders that they need."""
        return len(self._files) + len(self._folders)

    def _clash(self, index: int, key: str, folders: Iterable[str]) -> Clash | None:
        name = self._names[index]
        if key in self._files:
            first = self._files[key]
            return Clash(first, index, _likeness(self._names[first], name))
        if key in self._folders:
            first = self._folders[key]
            return Clash(first, index, f"{quote_name(name)} is a file and also the folder of another")
        first = next((self._files[folder] for folder in folders if folder in self._files), -1)
        if first >= 0:
            return Clash(
                first, index, f"{quote_name(self._names[first])} is a file and also the folder of another"
            )
        return None


def _key(name: str, case_fold: bool) -> str:
    """Equal for names that are the same on some file system."""
    key = unicodedata.normalize("NFC", name)
    return unicodedata.normalize("NFC", key.casefold()) if case_fold else key


def _folders(name: str) -> Iterable[str]:
    while name := name.rpartition("/")[0]:
        yield name


def _likeness(first: str, second: str) -> str:
    if first == second:
        return f"the name {quote_name(second)} is given twice"
    if unicodedata.normalize("NFC", first) == unicodedata.normalize("NFC", second):
        return f"{quote_name(second)} is given twice, once composed and once decomposed (Unicode NFC and NFD)"
    return f"{quote_name(first)} and {quote_name(second)} differ only in upper and lower case"


def duplicates(names: Iterable[str], case_fold: bool = True) -> tuple[Clash, ...]:
    """The names that cannot be in one folder with an earlier name."""
    listed = tuple(names)
    if _all_differ(listed, case_fold):
        return ()
    used = UsedNames(case_fold)
    return tuple(clash for name in listed if (clash := used.add(name)) is not None)


def _all_differ(names: Sequence[str], case_fold: bool) -> bool:
    """Whether no name clashes with another: all are compared at once, which takes a sixth of the time."""
    keys = {_key(name, case_fold) for name in names}
    parents = {key.rpartition("/")[0] for key in keys}
    folders = parents.union(*map(_folders, parents))
    return len(keys) == len(names) and keys.isdisjoint(folders)


def mail_addresses(entries: Iterable[str]) -> tuple[str, ...]:
    """The addresses of a report; an entry may list several."""
    parts = (part.strip() for entry in entries for part in re.split(r"[,;]", entry))
    return tuple(part for part in parts if part)


SECRET = re.compile(
    r"(?i)sig|token|secret|pass|pwd|psw|kennwort|contrase|credential|key|auth|bearer|jwt|saml|assertion|nonce"
    r"|code|sas|hmac|hdnea|hdnts|bewit|ticket|sess|cookie|policy|otp|private"
    r"|(?<![a-z])(?:st|sid|psid|pin|pw|tok|mac|md5|hash|cred|creds|access|verify|clave|senha)(?![a-z])"
)
"""In the name of a value in a query, as far as its value may open a source."""

_PAIR = re.compile(r"(?<=[?&;#])([^=&;#?\s|]+?)(=|%(?:25)*3[dD])([^&;#?\s|]+(?:[;?][^=&;#?\s|]*+(?!=))*)")
"""A name and its value in the query of a URL, in a text of which `|` and spaces divide the fields. The sign
between the two may be written as an escape, which some servers take for the sign itself. What follows a `;`
or `?` and names no value belongs to the value before."""

_USER = re.compile(r"(?<=://)(?:[^/?#@\s|]*@)+")


def hide_secrets(text: str) -> str:
    """The text with `...` for the users, the passwords and the secret values of its URLs; the rest stays.

    For copies that are kept: the bytes that are fetched need the text itself. The time is linear.
    """

    def hidden(pair: re.Match[str]) -> str:
        nested = _unescaped(pair[3])  # another address, or a query as one value
        secret = (
            SECRET.search(_unescaped(pair[1]))
            or ("=" in nested and SECRET.search(nested))
            or (nested != pair[3] and _USER.search(nested))
        )
        return f"{pair[1]}{pair[2]}..." if secret else pair[0]

    return _USER.sub("...@", _PAIR.sub(hidden, text))


def _unescaped(text: str) -> str:
    return unquote(unquote(text))


SCHEME = "upload"

ID_PATTERN = r"[0-9a-f]{32}"

_PREFIX = f"{SCHEME}:"
_ID = re.compile(ID_PATTERN)


class NotAnUpload(UsageRefused):
    """The text is not the address of an upload, or of a file in one."""


@dataclass(frozen=True)
class UploadAddress:
    """An upload, or one of its files; `name` is '' for the upload as a whole."""

    upload: str
    name: str = ""

    @property
    def url(self) -> str:
        written = quote(self.name, safe="/")
        return f"{_PREFIX}{self.upload}/{written}" if self.name else f"{_PREFIX}{self.upload}"


def is_upload(url: str) -> bool:
    return url[: len(_PREFIX)].lower() == _PREFIX


def is_local(text: str) -> bool:
    """Whether the text names a file or folder of this machine, and no URL."""
    return "://" not in text and not is_upload(text)


def is_upload_id(text: str) -> bool:
    return bool(_ID.fullmatch(text))


def parse_upload_url(url: str) -> UploadAddress:
    """The parts of an address; NotAnUpload if it cannot be one.

    >>> parse_upload_url("upload:00112233445566778899aabbccddeeff/my%20file.jpg").name
    'my file.jpg'
    """
    upload, slash, written = url[len(_PREFIX) :].partition("/")
    if not is_upload(url) or not is_upload_id(upload):
        raise NotAnUpload(f"{quote_name(url)} is not the address of an upload, such as upload:ID/NAME")
    if not slash:
        return UploadAddress(upload)
    try:
        name = safe_name(unquote(written, errors="strict"))
    except (UnicodeDecodeError, UnsafeName) as error:
        raise NotAnUpload(f"{quote_name(url)} names no file of an upload: {error}") from error
    return UploadAddress(upload, name)


def upload_problem(url: str) -> str | None:
    """Why the address of an upload cannot be used; None if its text is in order."""
    try:
        parse_upload_url(url)
    except NotAnUpload as problem:
        return str(problem)
    return None


def foreign_upload(url: str, manifest_url: str) -> str | None:
    """Why the manifest at `manifest_url` must not name `url`; None if it may."""
    if not is_upload(url):
        return None
    if is_upload(manifest_url):
        try:
            if parse_upload_url(url).upload == parse_upload_url(manifest_url).upload:
                return None
        except NotAnUpload as problem:
            return str(problem)
    return (
        f"{quote_name(url)} is not in the upload of this manifest: upload the manifest and the files that it "
        "names together"
    )


EXAMINED = 4096
"""Bytes at the beginning that are looked at."""

SIGN_IN = "a page for signing in or an error page may have come in its place"

PAGE_SUFFIXES = (".html", ".htm", ".xhtml", ".xht", ".shtml", ".php", ".asp", ".aspx", ".jsp")
"""Names of files that are expected to be web pages."""

_HTML = re.compile(rb"\s*(<!--.*?-->\s*)*<(!doctype\s+html|html|head|body)\b", re.IGNORECASE | re.DOTALL)
_XHTML = re.compile(
    rb"\s*<\?xml[^>]*>\s*(<!--.*?-->\s*)*<(!doctype\s+html|html)\b", re.IGNORECASE | re.DOTALL
)
HTML = "text/html"
_TYPES = (HTML, "application/xhtml+xml")
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


def is_web_page(data: bytes, content_type: str = "") -> bool:
    """Whether the bytes begin as HTML; with the type of HTML, whether they begin as any markup."""
    head = data[:EXAMINED].removeprefix(b"\xef\xbb\xbf")
    if head.startswith(_UTF16):
        head = head[2:].replace(b"\0", b"")
    if _HTML.match(head) or _XHTML.match(head):
        return True
    return content_type.partition(";")[0].strip().lower() in _TYPES and head.lstrip().startswith(b"<")


def parse_local_ids(text: str) -> tuple[str, ...]:
    """`a; b;a` -> (a, b): trimmed, without empty or repeated ids, in the given order."""
    return merge_local_ids(part.strip().replace("%sc", ";") for part in text.split(";"))


def merge_local_ids(*groups: Iterable[str]) -> tuple[str, ...]:
    """The ids of all groups without repeats, in the order of their first appearance."""
    return tuple(dict.fromkeys(name for group in groups for name in group if name))


def write_local_ids(ids: Iterable[str]) -> str:
    """The text that `parse` converts to these ids."""
    return ";".join(name.replace(";", "%sc") for name in ids)
