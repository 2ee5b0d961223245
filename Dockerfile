# syntax=docker/dockerfile:1
# docker build --target controller -t flagstaff-controller .
# docker build --target evaluator  -t flagstaff-evaluator .
# docker build --build-arg BASE=python:3.11-slim@sha256:… pins the base by its digest, and
# --build-arg SNAPSHOT=20260101T000000Z what is installed of Debian by the time of a snapshot.
ARG BASE=python:3.11-slim

FROM ${BASE} AS build
WORKDIR /src
# The wheel's builder alone; nothing of this stage but the wheel gets into an image.
COPY requirements/build.txt requirements/
# Each lock is complete: with --no-deps pip has nothing to resolve.
RUN pip install --no-cache-dir --no-deps --require-hashes -r requirements/build.txt
# The compiler of the serving path (docs/adr/0040-a-compiled-serving-path.md) stays here, too.
ARG SNAPSHOT
RUN --mount=type=bind,source=release,target=/release sh /release/debian_snapshot.sh "${SNAPSHOT}" \
    && apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev
COPY requirements/native.txt requirements/
RUN pip install --no-cache-dir --no-deps --require-hashes -r requirements/native.txt
COPY pyproject.toml README.md LICENSE ./
COPY release release
COPY controller controller
COPY evaluator evaluator
COPY crds crds
COPY deploy deploy
# What `--version` tells: there is no repository in the context.
ARG COMMIT
ARG SOURCE_DATE_EPOCH
RUN if [ -z "${SOURCE_DATE_EPOCH}" ]; then unset SOURCE_DATE_EPOCH; fi; \
    FLAGSTAFF_NATIVE=1 FLAGSTAFF_COMMIT=${COMMIT} \
    pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /dist .

FROM ${BASE} AS base
ENV PYTHONUNBUFFERED=1
# ssh wants an account and a home folder, where its known_hosts is mounted.
RUN useradd --uid 65532 --user-group --create-home flagstaff

# docker run -p 8013:8013 -p 8016:8016 -v ./flags.json:/flags.json flagstaff-evaluator start --uri file:/flags.json
# The sidecar's libraries and nothing else: no Git, no Kubernetes.
FROM base AS evaluator
# pip runs without leaving bytecode of itself, and of libraries only what is imported below gets some.
RUN --mount=type=bind,source=requirements,target=/requirements PYTHONDONTWRITEBYTECODE=1 \
    pip install --no-cache-dir --no-compile --no-deps --require-hashes -r /requirements/evaluator.txt
RUN --mount=type=bind,from=build,source=/dist,target=/dist PYTHONDONTWRITEBYTECODE=1 \
    pip install --no-cache-dir --no-deps /dist/*.whl
# Bytecode of what is imported: the base image has none of the standard library, and whoever starts us may write none.
RUN python -c "import controller.cli, evaluator.cli, evaluator.wiring, evaluator.sync.grpc_source, evaluator.sync.http_source, prometheus_client, uvloop"
USER 65532:65532
WORKDIR /home/flagstaff
EXPOSE 8013 8014 8015 8016
ENTRYPOINT ["flagstaff", "evaluator"]

# docker run -p 8013:8013 -p 8016:8016 flagstaff-controller up https://… --host 0.0.0.0
FROM base AS controller
# Git brings all of Perl, 46 MB, for commands that are not run here; perl-base stays.
ARG SNAPSHOT
RUN --mount=type=bind,source=release,target=/release sh /release/debian_snapshot.sh "${SNAPSHOT}" \
    && apt-get update \
    && apt-get install --yes --no-install-recommends git openssh-client \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt /usr/share/perl /usr/lib/*/perl /usr/lib/*/libperl.so.*
# Of Kubernetes' client its requests are used, and neither its 46 MB of methods, one for each path of the API,
# nor its classes of objects, which it loads on demand.
RUN --mount=type=bind,source=requirements,target=/requirements PYTHONDONTWRITEBYTECODE=1 \
    pip install --no-cache-dir --no-compile --no-deps --require-hashes -r /requirements/controller.txt \
    && cd "$(python -c 'import importlib.util as u; print(u.find_spec("kubernetes").submodule_search_locations[0])')" \
    && rm -r client/api aio/client/api \
    && find client/models aio/client/models -name '*.py' ! -name __init__.py -delete
RUN --mount=type=bind,from=build,source=/dist,target=/dist PYTHONDONTWRITEBYTECODE=1 \
    pip install --no-cache-dir --no-deps /dist/*.whl
RUN python -c "import controller.cli, controller.runtime.helper, controller.sources.bucket_client, controller.sources.sigstore_bundle, controller.app.controller_process, controller.local.local_mode, controller.app.proxy_process, evaluator.cli, evaluator.wiring, uvloop"
USER 65532:65532
WORKDIR /home/flagstaff
EXPOSE 8013 8014 8015 8016
ENTRYPOINT ["flagstaff"]
