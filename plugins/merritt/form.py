"""Merritt's submission form in arkline's terms: its fields, its types, and the files sent with it."""

from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import BinaryIO

from operations.deposits.submission import Submitted, checked, owned, submit
from operations.deposits.uploads import begin_upload, receive_file, remove_unless_submitted
from operations.site import Site
from pipeline.description import xml
from pipeline.errors import UsageRefused
from pipeline.fixity import Digest
from pipeline.manifests import checkm
from pipeline.manifests.checkm import ManifestError, ManifestProfile, Row
from pipeline.names import UploadAddress, is_container, mail_addresses, name_in, parse_local_ids, quote_name
from pipeline.principal import Principal
from pipeline.records import ResponseType, Submission, SubmissionMode, SubmissionType
from pipeline.uploads.stored import Declared

_INTERNAL = {
    "manifest": SubmissionType.OBJECT_MANIFEST,
    "batchManifest": SubmissionType.BATCH_MANIFEST,
    "batchManifestContainer": SubmissionType.CONTAINER_BATCH_MANIFEST,
    "batchManifestFile": SubmissionType.SINGLE_FILE_BATCH_MANIFEST,
}
"""Type names that Merritt's programs use besides those of the form."""

_SEVERAL = {
    SubmissionType.FILE: ManifestProfile.FILE_BATCH,
    SubmissionType.CONTAINER: ManifestProfile.CONTAINER_BATCH,
    SubmissionType.OBJECT_MANIFEST: ManifestProfile.BATCH,
}
"""Types of which several files form a batch, which needs a manifest here."""

_HEAD = 1 << 16
"""Bytes of a file read to recognise a manifest."""


@dataclass(frozen=True)
class FormFile:
    """A file sent with the form."""

    name: str
    stream: BinaryIO


@dataclass(frozen=True)
class Form:
    """The form; unknown fields are ignored, as by Merritt."""

    fields: Mapping[str, str]
    files: tuple[FormFile, ...] = ()
    urls: tuple[str, ...] = ()

    def text(self, *names: str) -> str:
        return next((value for name in names if (value := self.fields.get(name, "").strip())), "")


def submit_form(site: Site, principal: Principal, form: Form, mode: SubmissionMode) -> Submitted:
    """Submit the form; UsageRefused names the invalid field."""
    if len(form.files) + len(form.urls) == 0:
        raise UsageRefused("the form has no file: send the field `file`, as a file or as a URL")
    if form.urls and len(form.files) + len(form.urls) > 1:
        raise UsageRefused("the form has several URLs: send one, or a batch manifest that lists them")
    submission = owned(_submission(form, mode, principal), principal)
    if form.urls:
        return submit(site, principal, submission)
    site.profiles.get(submission.profile_name)
    upload = begin_upload(site, principal).id
    try:
        payload = _received(site, principal, upload, form, submission)
        return submit(site, principal, payload)
    except UsageRefused:
        remove_unless_submitted(site, principal, upload)
        raise


def _submission(form: Form, mode: SubmissionMode, principal: Principal) -> Submission:
    """The submission; its payload is the only URL, or a placeholder until the files have arrived."""
    url = form.urls[0] if form.urls else "upload:pending"
    name = form.text("filename") or (name_in(url) if form.urls else form.files[0].name)
    return checked(
        {
            "profile_name": form.text("profile"),
            "payload_url": url,
            "payload_filename": name,
            "type": _type(form, name),
            "submitter": form.text("submitter") or principal.name,
            "submission_mode": mode,
            "erc_who": form.text("creator"),
            "erc_what": form.text("title"),
            "erc_when": form.text("date"),
            "note": form.text("note"),
            "local_id": parse_local_ids(form.text("localIdentifier")),
            "primary_id": form.text("primaryIdentifier", "object") or None,
            "digest": _digest(form),
            "size": form.text("size") or None,
            "notification": mail_addresses([form.text("notification")]),
            "response_type": _response_type(form),
            "dublin_core": _dublin_core(form),
        }
    )


def _type(form: Form, name: str) -> SubmissionType:
    """The type given in the form, or inferred from the name or a manifest's first lines."""
    given = form.text("type")
    if given in _INTERNAL:
        return _INTERNAL[given]
    if given:
        try:
            return SubmissionType(given)
        except ValueError as error:
            known = ", ".join(kind.label for kind in SubmissionType)
            raise UsageRefused(f"type {quote_name(given)} is not one of {known}") from error
    if is_container(name):
        return SubmissionType.CONTAINER
    return _recognised(form.files[0]) if len(form.files) == 1 else SubmissionType.FILE


def _recognised(file: FormFile) -> SubmissionType:
    """The type of a file, which is a manifest if it begins like one."""
    head = file.stream.read(_HEAD)
    file.stream.seek(0)
    if not head.startswith(b"#%checkm"):
        return SubmissionType.FILE
    first_lines = b"\n".join(line for line in head.splitlines()[:20] if line.startswith(b"#%"))
    for profile in ManifestProfile:
        if profile.value.encode() in first_lines or f"mrt/{profile.value}".encode() in first_lines:
            return profile.submission_type
    return SubmissionType.OBJECT_MANIFEST


def _digest(form: Form) -> dict[str, str] | None:
    algorithm, value = form.text("digestType"), form.text("digestValue")
    if bool(algorithm) != bool(value):
        raise UsageRefused("digestType and digestValue belong together: send both or none")
    return {"algorithm": algorithm, "value": value} if value else None


def _response_type(form: Form) -> ResponseType:
    """The format of callbacks; the answer to the form supports more formats."""
    text = form.text("notificationFormat")
    return ResponseType(text) if text in set(ResponseType) else ResponseType.JSON


def _dublin_core(form: Form) -> dict[str, tuple[str, ...]]:
    elements = {element: form.text(f"DC.{element}") for element in xml.ELEMENTS}
    return {element: (value,) for element, value in elements.items() if value}


def _received(
    site: Site, principal: Principal, upload: str, form: Form, submission: Submission
) -> Submission:
    """Receive the files into the upload; returns their submission."""
    if len(form.files) == 1:
        declared = Declared(name=submission.payload_filename, digest=submission.digest, size=submission.size)
        file = receive_file(site, principal, upload, declared, form.files[0].stream)
        return submission.model_copy(update={"payload_url": UploadAddress(upload, file.name).url})
    profile = _SEVERAL.get(submission.type)
    if profile is None:
        raise UsageRefused(f"send one file of type {submission.type.label}, and not {len(form.files)}")
    rows = tuple(_row(site, principal, upload, *numbered) for numbered in enumerate(form.files, 1))
    try:
        data = checkm.write(profile, rows)
    except ManifestError as error:
        raise UsageRefused(str(error)) from error
    manifest = receive_file(site, principal, upload, Declared(name="batch.checkm"), BytesIO(data))
    return submission.model_copy(
        update={
            "payload_url": UploadAddress(upload, manifest.name).url,
            "payload_filename": manifest.name,
            "type": profile.submission_type,
            "digest": None,
            "size": None,
        }
    )


def _row(site: Site, principal: Principal, upload: str, number: int, file: FormFile) -> Row:
    declared = Declared(name=f"{number}/{file.name}")
    arrived = receive_file(site, principal, upload, declared, file.stream)
    return Row(
        line=0,
        url=UploadAddress(upload, arrived.name).url,
        name=file.name,
        digest=Digest(algorithm="sha512", value=arrived.sha512),
        size=arrived.size,
    )
