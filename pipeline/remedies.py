"""What a person can do about a state, a refusal or an error, as facts: an interface spells the command."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Self


class Action(StrEnum):
    """Codes are stable: scripts, pages and alerts read them. Most are verbs of arkline."""

    doc: str

    def __new__(cls, value: str, doc: str) -> Self:
        member = str.__new__(cls, value)
        member._value_ = value
        member.doc = doc
        return member

    UNPAUSE = "unpause", "Start new jobs again."
    RELEASE = "release", "Release the held job or batch."
    RELEASE_COLLECTION = "release-collection", "End the hold on the collection and release what it held."
    HOLD_COLLECTION = "hold-collection", "Put the collection on hold."
    RESUME = "resume", "Resume the failed job at the step that failed."
    RESUME_BATCH = "resume-batch", "Resume the failed jobs of the batch."
    FAIL = "fail", "Stop the job."
    CANCEL = "cancel", "Stop every job of the batch that has not ended."
    DELETE = "delete", "Delete the job or the batch."
    UPDATE_REPORT = "update-report", "Send the depositor a report of what changed."
    SHOW_REPORT = "report", "Print the batch's report."
    RENEW_PROFILE = "renew-profile", "Use the changed profile for the rest of the batch."
    UNDO_DRAIN = "undo-drain", "Let the worker accept tasks again."
    SHOW_STATUS = "status", "Show the job, the batch or the queue."
    SHOW_WHY = "why", "Explain what the job or the batch waits for."
    SHOW_JOBS = "jobs", "List jobs."
    SHOW_SPACE = "space", "Show what uses working storage."
    CLEAN_UP = "cleanup", "Remove what nothing needs from working storage."
    AUDIT = "audit", "Check the record in ZooKeeper."
    SUBMIT_AGAIN = "submit-again", "Make a new submission."
    START_WORKER = "start-worker", "Start a worker for the queue."
    START_BEAT = "start-beat", "Start the scheduler."
    START_BROKER = "start-broker", "Start Redis."
    ADD_SPACE = "add-space", "Enlarge working storage or raise its threshold."


@dataclass(frozen=True)
class Remedy:
    """One action, and the job, batch, collection, worker or queue that it is applied to."""

    action: Action
    target: str = ""
