"""The settings of the core and of the plugins in this repository."""

from pipeline.settings import EnvironmentSettings, Settings
from plugins.clamav.settings import ClamavSettings
from plugins.merritt.settings import MerrittSettings
from plugins.oidc.settings import OidcSettings
from plugins.otel.settings import OtelSettings
from plugins.s3.settings import S3Settings

KINDS: tuple[type[EnvironmentSettings], ...] = (
    Settings,
    S3Settings,
    MerrittSettings,
    OtelSettings,
    OidcSettings,
    ClamavSettings,
)

FIELDS = {name: field for kind in KINDS for name, field in kind.model_fields.items()}
