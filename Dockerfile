# syntax=docker/dockerfile:1
# docker build --target controller -t flagstaff-controller .
# docker build --target evaluator  -t flagstaff-evaluator .
# docker build --build-arg BASE=python:3.11-slim@sha256:… pins the base by its digest.
ARG BASE=python:3.11-slim

FROM ${BASE} AS build
WORKDIR /src
# The wheel's builder is pinned there; nothing of this stage but the wheel gets into an image.
COPY requirements/run.txt requirements/
RUN pip install --no-cache-dir --require-hashes -r requirements/run.txt
COPY pyproject.toml README.md LICENSE ./
COPY controller controller
COPY evaluator evaluator
COPY crds crds
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /dist .

FROM ${BASE} AS base
ENV PYTHONUNBUFFERED=1
# ssh wants an account and a home folder, where its known_hosts is mounted.
RUN useradd --uid 65532 --user-group --create-home flagstaff

# docker run -p 8013:8013 -p 8016:8016 -v ./flags.json:/flags.json flagstaff-evaluator start --uri file:/flags.json
# The sidecar's libraries and nothing else: no Git, no Kubernetes.
FROM base AS evaluator
COPY requirements/evaluator.txt /tmp/requirements.txt
RUN pip install --no-cache-dir --require-hashes -r /tmp/requirements.txt && rm /tmp/requirements.txt
RUN --mount=from=build,source=/dist,target=/dist pip install --no-cache-dir --no-deps /dist/*.whl
# Bytecode of what is imported: the base image has none of the standard library, and whoever starts us may write none.
RUN python -c "import controller.cli, evaluator.cli, evaluator.wiring, evaluator.sync.sources.grpc, evaluator.sync.sources.http, prometheus_client, uvloop"
USER 65532:65532
WORKDIR /home/flagstaff
EXPOSE 8013 8014 8015 8016
ENTRYPOINT ["flagstaff", "evaluator"]

# docker run -p 8013:8013 -p 8016:8016 flagstaff-controller up https://… --host 0.0.0.0
FROM base AS controller
RUN apt-get update \
    && apt-get install --yes --no-install-recommends git openssh-client \
    && rm -rf /var/lib/apt/lists/*
COPY requirements/controller.txt /tmp/requirements.txt
RUN pip install --no-cache-dir --require-hashes -r /tmp/requirements.txt && rm /tmp/requirements.txt
RUN --mount=from=build,source=/dist,target=/dist pip install --no-cache-dir --no-deps /dist/*.whl
RUN python -c "import controller.cli, controller.runtime.process.helper, controller.sources.bucket.store_client, controller.sources.verification.sigstore_bundle, controller.app.controller_process, controller.local.local_mode, controller.app.proxy_process, evaluator.cli, evaluator.wiring, uvloop"
USER 65532:65532
WORKDIR /home/flagstaff
EXPOSE 8013 8014 8015 8016
ENTRYPOINT ["flagstaff"]
