"""A job's state as a depositor's system is told it, in the names that Merritt's receivers know."""

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass

from pipeline.profiles.profile import Profile
from pipeline.records import Job, ResponseType
from pipeline.states import JobState

NAMESPACE = "http://uc3.cdlib.org/ontology/mrt/ingest/job"
RESOLVER = "https://n2t.net/"

# XML 1.0, production 2: what no document may hold, not even escaped
_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

Facts = Mapping[str, str | int]


@dataclass(frozen=True)
class Rendered:
    body: bytes
    media_type: str


def facts_of(job: Job, version: int | None) -> Facts:
    """What is told, less what there is none of. A job that is told of is completed, unless it failed."""
    configuration, status = job.configuration, job.status
    failed = status.status is JobState.FAILED
    ark = job.identifiers.primary_id
    facts = {
        "jobID": job.jid,
        "batchID": job.bid,
        "jobStatus": "FAILED" if failed else "COMPLETED",
        "jobStatusMessage": status.message if failed else None,
        "primaryID": ark,
        "localID": "; ".join(job.identifiers.local_id),
        "versionID": version,
        "packageName": configuration.payload_name,
        "objectCreator": configuration.erc_who,
        "objectTitle": configuration.erc_what,
        "objectDate": configuration.erc_when,
        "note": configuration.note,
        "submissionDate": configuration.submitted_at.isoformat(),
        # when the job came into this state: a repetition says the same
        "completionDate": status.last_modification_date.isoformat(),
        "persistentURL": f"{RESOLVER}{ark}" if ark else None,
    }
    return {name: value for name, value in facts.items() if value is not None and value != ""}


def wanted_form(job: Job, profile: Profile) -> ResponseType:
    """What the submission asked for, if it asked; else what its collection does; else JSON."""
    if job.configuration.response_type is not ResponseType.JSON:
        return job.configuration.response_type
    return profile.notification_format or ResponseType.JSON


def render(facts: Facts, form: ResponseType) -> Rendered:
    match form:
        case ResponseType.JSON:
            return Rendered(_json(facts), "application/json")
        case ResponseType.XML:
            return Rendered(_xml(facts), "application/xml")
        case ResponseType.TURTLE:
            return Rendered(_turtle(facts), "text/turtle")


def _json(facts: Facts) -> bytes:
    told = {f"job:{name}": value for name, value in facts.items()}
    return json.dumps({"job:jobState": {"xmlns:job": NAMESPACE, **told}}, ensure_ascii=False).encode()


def _xml(facts: Facts) -> bytes:
    root = ET.Element("job:jobState", {"xmlns:job": NAMESPACE})
    for name, value in facts.items():
        ET.SubElement(root, f"job:{name}").text = _NOT_IN_XML.sub("\ufffd", str(value))
    document: bytes = ET.tostring(root, "utf-8", xml_declaration=True)
    return document.replace(b"\r", b"&#13;")  # a bare one would be read as the end of a line


def _turtle(facts: Facts) -> bytes:
    # JSON's escapes are a subset of Turtle's as long as no character beyond U+FFFF is escaped
    told = [f"    job:{name} {json.dumps(value, ensure_ascii=False)}" for name, value in facts.items()]
    head = f"@prefix job: <{NAMESPACE}#> .\n\n[] a job:jobState ;\n"
    return (head + " ;\n".join(told) + " .\n").encode()
