"""The environment in which pip and uv install packages: pip's index settings and the system's certificates.

Behind a proxy that inspects TLS, only the system's certificate store knows the proxy's certificate; and a
site's own package index is usually configured for pip alone. uv reads neither by itself. Standard library
only, like tools/bootstrap.py, which uses this module.
"""

import ast
import ssl
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

FOR_UV = {
    "index-url": "UV_INDEX_URL",
    "extra-index-url": "UV_EXTRA_INDEX_URL",
    "find-links": "UV_FIND_LINKS",
    "no-index": "UV_NO_INDEX",
    "trusted-host": "UV_INSECURE_HOST",
    "proxy": "ALL_PROXY",
}
"""pip option -> the variable from which uv reads the same setting."""

BUNDLES = (
    Path("/etc/ssl/certs/ca-certificates.crt"),  # Debian, Ubuntu, Arch
    Path("/etc/pki/tls/certs/ca-bundle.crt"),  # Fedora, RHEL
    Path("/etc/ssl/cert.pem"),  # macOS, Alpine
)


def environment(current: Mapping[str, str], pip: Mapping[str, str], bundle: Path | None) -> dict[str, str]:
    """The variables to set for pip and uv; a variable that is already set is kept.

    `pip`: pip's settings, from `pip_settings`; `bundle`: the system's certificate file.
    """
    variables = {variable: pip[option] for option, variable in FOR_UV.items() if pip.get(option)}
    if "UV_EXTRA_INDEX_URL" in variables:
        # like pip, accept a version from any index: every package is checked against the lock's digests
        variables["UV_INDEX_STRATEGY"] = "unsafe-best-match"
    variables |= {"UV_SYSTEM_CERTS": "1", "UV_NATIVE_TLS": "1"}  # the flag's name since uv 0.13, and before
    own_bundle = pip.get("cert") or current.get("REQUESTS_CA_BUNDLE") or current.get("CURL_CA_BUNDLE")
    if own_bundle:
        variables["SSL_CERT_FILE"] = own_bundle
    elif "SSL_CERT_FILE" in current:
        variables["PIP_CERT"] = current["SSL_CERT_FILE"]
    elif bundle is not None:
        variables["PIP_CERT"] = str(bundle)  # before 24.2, pip trusts only its own list
    return {name: value for name, value in variables.items() if not current.get(name)}


def system_bundle(candidates: Iterable[Path] = BUNDLES) -> Path | None:
    """The system's certificate file; None if it is not found."""
    by_openssl = ssl.get_default_verify_paths().cafile
    files = (*((Path(by_openssl),) if by_openssl else ()), *candidates)
    return next((file for file in files if file.is_file()), None)


def pip_settings(
    commands: Iterable[list[str]], run: Callable[[list[str]], str] = lambda command: _output(command)
) -> dict[str, str]:
    """pip's settings from its files and from PIP_* variables, from the first pip that answers."""
    for command in commands:
        if output := run([*command, "config", "list", "--disable-pip-version-check"]):
            return parse(output)
    return {}


def parse(output: str) -> dict[str, str]:
    """The answer of `pip config list`: option -> value. A setting for `install`, and a variable, count most.

    >>> parse("global.index-url='https://a.example/simple'\\n:env:.cert='/ca.pem'\\n")
    {'index-url': 'https://a.example/simple', 'cert': '/ca.pem'}
    """
    by_section: dict[str, dict[str, str]] = {"global": {}, "install": {}, ":env:": {}}
    for line in output.splitlines():
        name, separator, value = line.partition("=")
        section, _, option = name.rpartition(".")
        if separator and section in by_section:
            by_section[section][option] = " ".join(str(ast.literal_eval(value)).split())
    return by_section["global"] | by_section["install"] | by_section[":env:"]


def _output(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout
    except OSError:
        return ""
