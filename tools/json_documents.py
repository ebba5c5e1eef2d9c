"""What each command prints with --json: the table behind docs/api/json.md, which tools.json_page writes."""

from entrypoints.web.routes.about import WhoAmI
from operations import notifications
from operations.board.values import BoardSummary
from operations.checks.aliases import AuditView, ReconcileView
from operations.checks.check import CheckView
from operations.checks.deployment import BackupView, DeploymentView, InventoryRestoreView, RestoreView
from operations.collection_report import CollectionReport
from operations.deposits.dry_run_result import DryRunResult
from operations.deposits.submission import Submitted
from operations.deposits.validation import CheckResult
from operations.doctor.bundle import BundleView
from operations.doctor.line import Examination
from operations.explanation import Explanation
from operations.fleet.fleet import Drained
from operations.fleet.health import Overview
from operations.fleet.plan import FleetPlan
from operations.fleet.working_storage import CleanUp, SpaceView
from operations.jobs.batch_view import BatchView
from operations.jobs.job_view import JobList, JobView, Timeline
from operations.objects.fixity import FixityReport, FixityRun
from operations.objects.objects import Export, ObjectView
from operations.objects.recheck import RecheckRun
from operations.objects.search import ObjectList
from operations.tokens import NewToken, Tokens
from operations.verbs.bulk import Outcome
from operations.verbs.callbacks import CallbackAnswer, OwedPage
from operations.verbs.collection_profiles import ProfileLines, ProfileRenewal, ProfileView
from operations.verbs.holds import ActionHistory, BatchHistory, HoldResult
from pipeline.attempt import Progress
from pipeline.inventory.tokens import TokenEntry
from pipeline.notify.batch_report import BatchReport
from pipeline.records import Record


class JobStatus(JobView):
    """A job, and the progress of its download."""

    progress: Progress | None
    """None unless it is downloading."""


class Answer(Explanation):
    """An explanation with the words and the commands that people get."""

    text: str
    commands: tuple[str, ...]
    """What helps, as commands."""


class ProfileChecks(Record):
    profiles: tuple[CheckResult, ...]


class Template(Record):
    template: str
    """The text of the file."""


class LoggedIn(WhoAmI):
    url: str
    source: str
    """Where the address and the token come from."""


class Address(Record):
    url: str
    """The address of the program or the page."""


class StackStarted(Record):
    """How to reach a stack that was started."""

    pid: int
    zk_hosts: str
    broker_url: str
    web_url: str
    token: str
    """An operator's token for the pages and the REST API."""
    flower_url: str
    flower_user: str
    flower_password: str
    environment: dict[str, str]
    """The ARKLINE_* variables with which a program works on this stack."""


class StackStopped(Record):
    home: str
    stopped: bool
    """False if no stack was running."""


DOCUMENTS: dict[str, object] = {
    "callback list": OwedPage,
    "callback deliver": CallbackAnswer,
    "callback test": CallbackAnswer,
    "submit": Submitted,
    "submit --wait": BatchView,
    "submit --dry-run": DryRunResult,
    "watch BID": BatchView,
    "report BID": BatchReport,
    "manifest check": CheckResult,
    "manifest from-csv": CheckResult,
    "manifest from-csv --template": Template,
    "profile list": ProfileLines,
    "profile show": ProfileView,
    "profile template": Template,
    "profile check": ProfileChecks,
    "profile renew": ProfileRenewal,
    "status": Overview,
    "status BID": BatchView,
    "status JID": JobStatus,
    "top --once": BoardSummary,
    "jobs": JobList,
    "timeline": Timeline,
    "why": Answer,
    "open": Address,
    "collection": CollectionReport,
    "login": LoggedIn,
    "logout": Address,
    "whoami": LoggedIn,
    "objects": ObjectList,
    "object": ObjectView,
    "export": Export,
    "fixity report": FixityReport,
    "fixity check": FixityRun,
    "recheck": RecheckRun,
    "fleet plan": FleetPlan,
    "space": SpaceView,
    "check": CheckView,
    "audit": AuditView,
    "hold": Outcome,
    "hold --collection": HoldResult,
    "release": Outcome,
    "release --collection": HoldResult,
    "resume": Outcome,
    "approve": Outcome,
    "reject": Outcome,
    "fail": Outcome,
    "delete": Outcome,
    "cancel": Outcome,
    "repair": Outcome,
    "update-report": Outcome,
    "pause": HoldResult,
    "unpause": HoldResult,
    "history": ActionHistory,
    "history BID": BatchHistory,
    "drain": dict[str, tuple[str, ...]],
    "drain WORKER": Drained,
    "cleanup": CleanUp,
    "doctor": Examination,
    "support-bundle": BundleView,
    "init": DeploymentView,
    "backup": BackupView,
    "restore": RestoreView,
    "restore --inventory": InventoryRestoreView,
    "token create": NewToken,
    "notify add": notifications.SubscriptionView,
    "notify list": notifications.Subscriptions,
    "notify confirm": notifications.Confirmed,
    "notify test": notifications.SubscriptionView,
    "notify remove": notifications.Ended,
    "token list": Tokens,
    "token revoke": TokenEntry,
    "exporter": Address,
    "web": Address,
    "reconcile": ReconcileView,
    "standalone start": StackStarted,
    "standalone stop": StackStopped,
}
"""Command with what selects its document -> the type of the document."""

VERSION = 1
"""Of the documents: raised when a field is removed, renamed or changed."""
