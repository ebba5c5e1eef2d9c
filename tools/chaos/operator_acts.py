"""Injects an operator's acts; operator_verbs.py and store_verbs.py define them."""

from tools.chaos import hostile, operator_verbs, store_verbs
from tools.chaos.faults import Effect, FaultContext, Table, kind_of
from tools.chaos.schedule import Fault, Kind

BEGIN: Table = {}
"""Kind of act -> function that asks the operator for it."""

_ACTS = {
    Kind.HOLD_COLLECTION: operator_verbs.HOLD_COLLECTION,
    Kind.HOLD_JOB: operator_verbs.HOLD_JOB,
    Kind.PAUSE: operator_verbs.PAUSE,
    Kind.FAIL_JOB: operator_verbs.FAIL_JOB,
    Kind.RESUME_JOBS: operator_verbs.RESUME_JOBS,
    Kind.RESUME_FROM: operator_verbs.RESUME_FROM,
    Kind.DELETE_JOB: operator_verbs.DELETE_JOB,
    Kind.DELETE_BATCH: operator_verbs.DELETE_BATCH,
    Kind.CANCEL_BATCH: operator_verbs.CANCEL_BATCH,
    Kind.UPDATE_REPORT: operator_verbs.UPDATE_REPORT,
    Kind.BACK_UP: store_verbs.BACK_UP,
    Kind.RECONCILE: store_verbs.RECONCILE,
    Kind.EXPORT: store_verbs.EXPORT,
    Kind.CHECK_FIXITY: store_verbs.CHECK_FIXITY,
}

_REVERSE = {
    Kind.HOLD_COLLECTION: operator_verbs.RELEASE_COLLECTION,
    Kind.HOLD_JOB: operator_verbs.RELEASE_JOBS,
    Kind.PAUSE: operator_verbs.UNPAUSE,
}


@kind_of(BEGIN, *_ACTS)
def _ask(context: FaultContext, fault: Fault, late: bool) -> Effect:
    thread = context.operator
    thread.ask(_ACTS[fault.kind], fault.target, fault.kind.label)
    reverse = _REVERSE.get(fault.kind)
    return Effect("asked", None if reverse is None else lambda: thread.ask(reverse))


@kind_of(BEGIN, Kind.HOSTILE_SOURCE, Kind.OVERSIZED)
def _submit_bad(context: FaultContext, fault: Fault, late: bool) -> Effect:
    fakes, key = context.cluster.fakes, f"hostile-{fault.at}"
    if fault.kind is Kind.OVERSIZED:
        bad = hostile.oversized(fakes.source, fault.target, key)
    else:
        bad = hostile.from_hostile_source(fakes.hostile, fault.target, key)
    thread = context.operator
    thread.ask(hostile.submitting(bad), label=fault.kind.label)
    return Effect(bad.form, lambda: thread.ask(hostile.CANCEL_HOSTILE))
