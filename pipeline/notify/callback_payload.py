"""The body of a callback: a job's state under the names that receivers of Merritt's callbacks know."""

import json
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from pipeline.description.final import final_description
from pipeline.description.xml_text import clean
from pipeline.profiles.profile import Profile
from pipeline.records import Job, ResponseType, now
from pipeline.states import Event, JobState

NAMESPACE = "http://uc3.cdlib.org/ontology/mrt/ingest/job"
RESOLVER = "https://n2t.net/"


Facts = Mapping[str, str | int]


@dataclass(frozen=True)
class Payload:
    body: bytes
    media_type: str


def callback_facts(job: Job, version: int | None) -> Facts:
    """The facts of a callback; facts without a value are left out.

    A callback is sent only for a job that is complete or has failed.
    """
    configuration, status = job.configuration, job.status
    failed = status.status is JobState.FAILED
    ark = job.identifiers.primary_id
    description = final_description(configuration, job.identifiers)
    facts = {
        "jobID": job.jid,
        "batchID": job.bid,
        "jobStatus": "FAILED" if failed else "COMPLETED",
        "jobStatusMessage": status.message if failed else None,
        "primaryID": ark,
        "localID": "; ".join(job.identifiers.local_id),
        "versionID": version,
        "packageName": configuration.payload_name,
        "objectCreator": description.who,
        "objectTitle": description.what,
        "objectDate": description.when,
        "note": configuration.note,
        "submissionDate": configuration.submitted_at.isoformat(),
        "completionDate": _work_ended(job).isoformat(),
        "persistentURL": f"{RESOLVER}{ark}" if ark else None,
    }
    return {name: value for name, value in facts.items() if value is not None and value != ""}


def _work_ended(job: Job) -> datetime:
    """When the job failed, or its object was recorded: a callback sent again has the same date."""
    if job.status.status is not JobState.FAILED:
        for entry in reversed(job.history):
            if (entry.state, entry.event) == (JobState.NOTIFY, Event.SUCCEED):
                return entry.at
    return job.status.since


def test_facts(collection: str) -> Facts:
    """The facts of a test: its `jobStatus` is that of no job."""
    return {
        "jobID": "test",
        "jobStatus": "TEST",
        "jobStatusMessage": f"a test of the callbacks of the collection {collection}; nothing was deposited",
        "completionDate": now().isoformat(),
    }


def response_format(job: Job, profile: Profile) -> ResponseType:
    """The format that the submission asks for, else the collection's, else JSON."""
    if job.configuration.response_type is not ResponseType.JSON:
        return job.configuration.response_type
    return profile.notification_format or ResponseType.JSON


def render(facts: Facts, response_type: ResponseType) -> Payload:
    match response_type:
        case ResponseType.JSON:
            return Payload(_json(facts), "application/json")
        case ResponseType.XML:
            return Payload(_xml(facts), "application/xml")
        case ResponseType.TURTLE:
            return Payload(_turtle(facts), "text/turtle")


def _json(facts: Facts) -> bytes:
    fields = {f"job:{name}": value for name, value in facts.items()}
    return json.dumps({"job:jobState": {"xmlns:job": NAMESPACE, **fields}}, ensure_ascii=False).encode()


def _xml(facts: Facts) -> bytes:
    root = ET.Element("job:jobState", {"xmlns:job": NAMESPACE})
    for name, value in facts.items():
        ET.SubElement(root, f"job:{name}").text = clean(str(value))
    document: bytes = ET.tostring(root, "utf-8", xml_declaration=True)
    return document.replace(b"\r", b"&#13;")  # an unescaped CR would be read as a line end


def _turtle(facts: Facts) -> bytes:
    # JSON's escapes are a subset of Turtle's as long as no character beyond U+FFFF is escaped
    fields = [f"    job:{name} {json.dumps(value, ensure_ascii=False)}" for name, value in facts.items()]
    head = f"@prefix job: <{NAMESPACE}#> .\n\n[] a job:jobState ;\n"
    return (head + " ;\n".join(fields) + " .\n").encode()
