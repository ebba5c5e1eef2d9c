"""Names that depositors give: file names, ARKs, upload addresses; and redaction of secrets in URLs.

Rule: a name is used exactly as given, or refused; no name is corrected silently.

An upload is `upload:ID/NAME`, with NAME percent-encoded. Rule: a manifest may name files of its own upload
only, because whoever may submit the manifest may submit those.

The depositor's own identifiers of an object (local ids) are a list in one text, separated by `;`, with `%sc`
for a literal `;`.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, unquote, urlsplit

from pipeline import codes
from pipeline.errors import ArklineError, UsageRefused

PLACES = frozenset({".", ".."})
"""Names that nothing has: in a path they are places, and ZooKeeper refuses them."""

ARK_CHARACTERS = "A-Za-z0-9=~*+@_$%./"
"""The characters of an ARK's name, for a character class; hyphens are also allowed and are ignored."""

ARK_PATTERN = rf"^ark:/?[0-9]{{5,9}}/[{ARK_CHARACTERS}-]{{1,200}}$"
"""An ARK as accepted for a primary identifier: with the slash after `ark:` or (newer form) without."""

SEGMENT_LIMIT = 255
"""Maximum bytes of one segment in UTF-8: the limit of ext4, XFS, ZFS and APFS."""

NAME_LIMIT = 1024
"""Maximum bytes of a whole name in UTF-8: an S3 key's limit; with our folders still well below PATH_MAX."""

DEPTH_LIMIT = 64
"""Maximum segments of a name: limits the folders that a hostile list can create."""

PRODUCER = "producer/"
"""The folder of a depositor's files, in the working directory and in the stored object."""

COMPOSED_OTHERWISE = "differs only in how a letter is composed (Unicode NFC and NFD)"

CONTAINER_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2")

_SYSTEM_FILES = frozenset({".ds_store", ".localized", "thumbs.db", "ehthumbs.db", "desktop.ini"})
_SYSTEM_FOLDERS = frozenset(
    {".git", ".svn", "__macosx", ".spotlight-v100", ".trashes", ".fseventsd", "$recycle.bin", "@eadir"}
)

# Control characters, surrogates, and the two separators that some readers of lists take for a line end.
_UNWRITABLE = frozenset({"Cc", "Cs", "Zl", "Zp"})
# Invisible characters, which reorder the name on a screen or make it look like another name. Those that
# people need in names are allowed: joiners, directional marks, soft hyphens, the tags of flags.
_INVISIBLE = re.compile("[\u200b\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0001]")
# ASCII: without it, other scripts' digits match, and the signs of kelvin and of the long s, as k and s.
_ARK = re.compile(rf"ark:/?(\d{{5,9}})/([{ARK_CHARACTERS}-]{{1,200}})", re.IGNORECASE | re.ASCII)
_DOTS = re.compile(r"\.*")
_NOT_XML = "\ufffe\uffff"
"""Characters that XML, into which names are written, cannot contain."""


class NotAnArk(UsageRefused):
    code = codes.NOT_AN_ARK


class UnsafeName(ArklineError):
    """A file name that would leave its folder, or that a file system cannot store."""


@dataclass(frozen=True)
class Clash:
    """Two names, by position in the list, that cannot be in the same folder, and the reason."""

    first: int
    second: int
    reason: str


def canonical_ark(text: str) -> str:
    """The canonical spelling: `ark:99999/fk4x` and `ARK:/99999/fk4-x` are `ark:/99999/fk4x`.

    Hyphens in an ARK are ignored (draft-kunze-ark). A name with an empty segment, or one of dots only, is
    refused: a folder of that name could be outside its parent.
    """
    return spellings(text)[0]


def spellings(text: str) -> tuple[str, ...]:
    """The canonical spelling, then the spelling with hyphens if the text has any.

    Releases before 0.2.1 stored objects under the spelling with hyphens.
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


def is_system_file(name: str) -> bool:
    """Whether an operating system or a program made the file for itself: `.DS_Store`, `._a.jpg`, `.git/HEAD`.

    >>> is_system_file("scans/Thumbs.db"), is_system_file(".git/HEAD"), is_system_file(".htaccess")
    (True, True, False)
    """
    *folders, last = name.lower().split("/")
    return last in _SYSTEM_FILES or last.startswith("._") or not _SYSTEM_FOLDERS.isdisjoint(folders)


def name_in(url: str) -> str:
    """The last segment of the URL's path, unescaped for people; empty if the path ends in a slash."""
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
    """Replace control characters, which could alter a terminal's display; line ends are kept."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else instead for c in text)


def one_line(text: str, instead: str = "\N{REPLACEMENT CHARACTER}") -> str:
    """Replace control characters and line ends."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else instead for c in text)


@lru_cache(maxsize=256)  # for our own files, in every object, and for repeated checks of a file
def safe_name(name: str, within: str = "", *, stored: bool = False) -> str:
    """The name, unchanged, if it is a relative path that is safe to write below a folder.

    `within`: the name's folder, with a trailing slash; counts towards the length. `stored`: the name belongs
    to an object that is already stored; early releases accepted invisible characters.
    """
    reason = _unsafe(name) or _too_long(within + name)
    if not reason and not stored and not name.isprintable() and (invisible := _INVISIBLE.search(name)):
        reason = f"has the invisible character U+{ord(invisible[0]):04X} in it"
    if reason:
        raise UnsafeName(f"file name {quote_name(name)} {reason}")
    return name


def check_deposit_name(name: str) -> None:
    """Refuse a name that is blank, or that could alter or disguise what a list or a mail shows."""
    reason = "" if name.strip() else "is blank"
    if hidden := _unwritable(name) or _INVISIBLE.search(name):
        reason = f"has the invisible character U+{ord(hidden[0]):04X} in it"
    if reason:
        raise UnsafeName(f"the deposit's name {quote_name(name)} {reason}")


def without_unwritable(text: str) -> str:
    """The text without characters that no name may contain; spaces and joiners of all scripts are kept."""
    return _INVISIBLE.sub("", "".join(c for c in text if _unwritable(c) is None))


def composed_otherwise(name: str, names: Iterable[str]) -> str:
    """The one of `names` that differs only in Unicode composition; empty if there is none."""
    same = unicodedata.normalize("NFC", name)
    return next(
        (other for other in names if other != name and unicodedata.normalize("NFC", other) == same), ""
    )


def quote_name(name: str, limit: int = 200) -> str:
    """The name in quotes, with unprintable characters escaped, and cut to keep a message readable.

    Secrets are hidden, because a URL may have been given in place of a name.
    """
    text = "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in hide_secrets(name[:limit]))
    return f"'{text}{'...' if len(name) > limit else ''}'"


def _unsafe(name: str) -> str | None:
    """Why the name is refused; None if it is safe."""
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
    if not PLACES.isdisjoint(segments):
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
    """The names used so far, to detect clashes with further names.

    Names that differ only in Unicode composition are the same name on some file systems, and so are, with
    `case_fold`, names that differ only in upper and lower case.
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
        """The number of files and of the folders that they need."""
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
    """The names that cannot be in the same folder as an earlier name."""
    listed = tuple(names)
    if _all_differ(listed, case_fold):
        return ()
    used = UsedNames(case_fold)
    return tuple(clash for name in listed if (clash := used.add(name)) is not None)


def _all_differ(names: Sequence[str], case_fold: bool) -> bool:
    """Whether no names clash; comparing all at once takes a sixth of the time of UsedNames."""
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
"""Part of a query parameter's name if its value may give access to a source."""

_PAIR = re.compile(r"(?<=[?&;#])([^=&;#?\s|]+?)(=|%(?:25)*3[dD])([^&;#?\s|]+(?:[;?][^=&;#?\s|]*+(?!=))*)")
"""A parameter's name and value in a URL's query, in a text whose fields are separated by `|` and spaces. The
`=` may be escaped, since some servers unescape it. Text after a `;` or `?` that is not itself a parameter
belongs to the preceding value."""

_USER = re.compile(r"(?<=://)(?:[^/?#@\s|]*@)+")


def hide_secrets(text: str) -> str:
    """Replace users, passwords and secret values in the text's URLs by `...`.

    For stored copies only: fetching needs the original text. Takes linear time.
    """

    def hidden(pair: re.Match[str]) -> str:
        nested = _unescaped(pair[3])  # another URL, or a query in one value
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
    """An upload or one of its files; `name` is '' for the upload as a whole."""

    upload: str
    name: str = ""

    @property
    def url(self) -> str:
        written = quote(self.name, safe="/")
        return f"{_PREFIX}{self.upload}/{written}" if self.name else f"{_PREFIX}{self.upload}"


def is_upload(url: str) -> bool:
    return url[: len(_PREFIX)].lower() == _PREFIX


def is_local(text: str) -> bool:
    """Whether the text is a file or folder on this machine rather than a URL."""
    return "://" not in text and not is_upload(text)


def is_upload_id(text: str) -> bool:
    return bool(_ID.fullmatch(text))


def parse_upload_url(url: str) -> UploadAddress:
    """The parts of an upload's address; NotAnUpload if the text is not one.

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
    """Why the address of an upload cannot be used; None if its text is valid."""
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
"""Bytes at the beginning that are examined."""

SIGN_IN = "a page for signing in or an error page may have come in its place"

PAGE_SUFFIXES = (".html", ".htm", ".xhtml", ".xht", ".shtml", ".php", ".asp", ".aspx", ".jsp")
"""Suffixes of files that are expected to be web pages."""

# A comment ends at its first end and is not tried again: each further comment would double the time.
_COMMENTS = rb"\s*(?><!--.*?-->\s*)*+"
_HTML = re.compile(_COMMENTS + rb"<(!doctype\s+html|html|head|body)\b", re.IGNORECASE | re.DOTALL)
_XHTML = re.compile(
    rb"\s*<\?xml[^>]*>" + _COMMENTS + rb"<(!doctype\s+html|html)\b", re.IGNORECASE | re.DOTALL
)
HTML = "text/html"
_TYPES = (HTML, "application/xhtml+xml")
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


def is_web_page(data: bytes, content_type: str = "") -> bool:
    """Whether the bytes begin like HTML, or, with a content type of HTML, like any markup."""
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


LOCAL_ID_LENGTH = 255
"""Maximum characters; see `pipeline.inventory.tables.ARK_LENGTH`."""


def local_id_problem(name: str) -> str | None:
    """Why no object can have this local id; None if one can."""
    if 1 <= len(name) <= LOCAL_ID_LENGTH:
        return None
    return f"the local id '{name[:80]}' has {len(name)} characters; 1 to {LOCAL_ID_LENGTH} are allowed"


def write_local_ids(ids: Iterable[str]) -> str:
    """The text that `parse_local_ids` converts to these ids."""
    return ";".join(name.replace(";", "%sc") for name in ids)
