"""Settings of the login at an OpenID provider."""

import re
from pathlib import Path
from typing import Self

from pydantic import Field, SecretStr, field_validator, model_validator

from pipeline.settings import EnvironmentSettings

_ISSUER = re.compile(r"https://.+|http://(127\.0\.0\.1|localhost)([:/].*)?")


class OidcSettings(EnvironmentSettings):
    oidc_issuer: str = Field(
        "",
        description="URL of an OpenID Connect provider at which people log in at the pages, exactly as it "
        "names itself: https://login.example.org/realms/library; empty: they log in with tokens alone.",
    )
    oidc_client_id: str = Field("", description="Client id of arkline at the provider.")
    oidc_client_secret: SecretStr = Field(
        SecretStr(""), description="Client secret of arkline at the provider; a new one ends all logins."
    )
    oidc_groups: Path | None = Field(
        None, description="File with the role and the collections of each group of the provider."
    )
    oidc_groups_claim: str = Field("groups", description="Claim of the ID token with a person's groups.")
    oidc_name_claim: str = Field(
        "sub",
        description="Claim of the ID token with a person's name, to whom deposits belong: the provider must "
        "never give it to another person.",
    )
    oidc_scopes: str = Field("openid", description="Scopes that are requested, openid among them.")

    @field_validator("oidc_issuer")
    @classmethod
    def _is_encrypted(cls, value: str) -> str:
        if value and not _ISSUER.fullmatch(value):
            raise ValueError("the URL begins with https://, or is of this machine")
        return value

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        secret = self.oidc_client_secret.get_secret_value()
        if self.oidc_issuer and not (self.oidc_client_id and secret and self.oidc_groups):
            raise ValueError(
                "ARKLINE_OIDC_ISSUER needs ARKLINE_OIDC_CLIENT_ID, ARKLINE_OIDC_CLIENT_SECRET and "
                "ARKLINE_OIDC_GROUPS"
            )
        return self
