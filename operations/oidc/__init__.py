"""Login by an OpenID Connect provider, for the pages; needs the extra `oidc`."""
