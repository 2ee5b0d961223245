# Both images, for amd64 and arm64, with provenance and SBOM:
#   REGISTRY=ghcr.io/your-team VERSION=0.1.0 COMMIT=$(git rev-parse HEAD) docker buildx bake --push
variable "REGISTRY" {
  default = "registry.example"
}
variable "VERSION" {
  default = "0.1.0"
}
# By its digest where reproducible builds matter: python:3.11-slim@sha256:…
variable "BASE" {
  default = "python:3.11-slim"
}
# Debian's packages above the base as they were at a time, such as 20260101T000000Z; by default as they are now.
variable "SNAPSHOT" {
  default = ""
}
variable "COMMIT" {
  default = ""
}
# When the images say that they were built; seconds, by default now.
variable "SOURCE_DATE_EPOCH" {
  default = ""
}

group "default" {
  targets = ["controller", "evaluator"]
}

target "image" {
  context   = "."
  platforms = ["linux/amd64", "linux/arm64"]
  args = {
    BASE              = BASE
    COMMIT            = COMMIT
    SNAPSHOT          = SNAPSHOT
    SOURCE_DATE_EPOCH = SOURCE_DATE_EPOCH
  }
  attest = ["type=provenance,mode=max", "type=sbom"]
  labels = {
    "org.opencontainers.image.licenses" = "Apache-2.0"
    "org.opencontainers.image.revision" = COMMIT
    "org.opencontainers.image.version"  = VERSION
  }
}

target "controller" {
  inherits = ["image"]
  target   = "controller"
  tags     = ["${REGISTRY}/flagstaff-controller:${VERSION}"]
}

target "evaluator" {
  inherits = ["image"]
  target   = "evaluator"
  tags     = ["${REGISTRY}/flagstaff-evaluator:${VERSION}"]
}
