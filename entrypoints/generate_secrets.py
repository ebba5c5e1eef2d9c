"""Generate the secrets and certificates of a fleet in containers.

`python -m entrypoints.generate_secrets FOLDER` is run at every start: existing secrets are kept, so a second
start changes nothing. FOLDER has one volume per kind of process, so that each gets only the secrets it needs.
"""

import hashlib
import secrets
import sys
from collections.abc import Callable
from pathlib import Path

from operations.certificates import authority
from pipeline.file_system import replace_file

VOLUMES = ("fleet", "signing", "beat", "exporter", "flower", "redis", "postgresql", "grafana")
"""The volumes in FOLDER, one per kind of process."""

COPIES = {
    "signing": ("arkline_zk_password", "arkline_broker_url", "pgpass"),
    "beat": ("arkline_zk_password", "arkline_broker_url"),
    "exporter": ("arkline_zk_password", "arkline_broker_url"),
}
"""Volume -> the fleet's secrets that are copied into it."""

CERTIFICATES = "certificates"
"""The folder of the certificates, with a volume per server in it."""

BROKER = (
    "rediss://{user}:{password}@redis:6379/0?ssl_cert_reqs=required&ssl_ca_certs=/run/trust/authority.pem"
)
CLEAR_TEXT = "redis://"
"""How the addresses begin that 0.3.0 and earlier releases made."""

RIGHTS = (
    "~arkline:* &* -@all +@connection +@transaction +blpop +brpop +rpush +lpush +rpop +llen +lrange +lrem "
    "+sadd +srem +smembers +sismember +scard +zadd +zrem +zrange +zrangebyscore +zrevrangebyscore +zcard "
    "+hset +hget +hgetall +hdel +hlen +set +get +mget +del +unlink +exists +expire +pexpire +type +rename "
    "+publish +subscribe +psubscribe +unsubscribe +punsubscribe +eval +evalsha +script|load "
    "+script|exists +time +info"
)
"""Rights of the Redis user, as in docs/operators/trust.md."""


def generate(folder: Path) -> None:
    """Generate missing secrets; the fleet's are read as settings (ARKLINE_SECRETS), Flower's by Flower."""
    fleet, flower, redis, postgresql, grafana = (folder / name for name in VOLUMES if name not in COPIES)
    for own, name in ((fleet, "arkline_zk_password"), (folder / "signing", "arkline_callback_secret")):
        _keep(own / name, lambda: secrets.token_hex(24))
    users = ["user default off"]
    for user, own in (("arkline", fleet), ("flower", flower)):
        url = _keep(own / "arkline_broker_url", lambda user=user: _broker_url(user))  # type: ignore[misc]
        password = url.split(":")[2].split("@")[0]
        if url.startswith(CLEAR_TEXT):
            replace_file(own / "arkline_broker_url", BROKER.format(user=user, password=password))
        users.append(f"user {user} on #{_digest(password)} {RIGHTS}")
    renewal = _keep(redis / "certificates", lambda: secrets.token_hex(24), 0o644)
    users.append(f"user certificates on #{_digest(renewal)} -@all +config|set")
    login = _keep(flower / "password", lambda: secrets.token_hex(16))
    replace_file(flower / "flowerconfig.py", f"basic_auth = ['arkline:{login}']\n")
    # PostgreSQL and Grafana run as other users; no other container mounts their folders
    _keep(grafana / "password", lambda: secrets.token_hex(16), 0o644)
    database = _keep(postgresql / "password", lambda: secrets.token_hex(24), 0o644)
    replace_file(fleet / "pgpass", f"postgresql:5432:arkline:arkline:{database}\n")
    for volume, names in COPIES.items():
        for name in names:
            replace_file(folder / volume / name, (fleet / name).read_text())
    # Redis runs as another user; no other container mounts its folder
    replace_file(redis / "users.acl", "\n".join([*users, ""]), 0o644)
    _make_certificates(folder / CERTIFICATES)


def _make_certificates(folder: Path) -> None:
    authority.renew(folder)
    for server in authority.SERVERS:
        # each server runs as another user, and alone has the volume; a renewal keeps the mode
        (folder / server / authority.SERVER_FILE).chmod(0o644)


def _digest(password: str) -> str:
    return hashlib.sha256(password.encode()).hexdigest()


def _broker_url(user: str) -> str:
    return BROKER.format(user=user, password=secrets.token_hex(24))


def _keep(path: Path, make: Callable[[], str], mode: int = 0o600) -> str:
    if not path.exists():
        replace_file(path, make(), mode)
    return path.read_text()


if __name__ == "__main__":
    generate(Path(sys.argv[1]))
