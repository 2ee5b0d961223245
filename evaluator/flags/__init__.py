"""The shared model: what a flag set is and how it is read. Pure: no I/O, no clock."""

from evaluator.flags.canonical import canonical, digest
from evaluator.flags.checking.rules import check_rule
from evaluator.flags.diff import Change, Diff, diff
from evaluator.flags.layers.catalog import Catalog, UnknownSourceError
from evaluator.flags.layers.layer import Layer, read_layer
from evaluator.flags.layers.merge import Parsed, merge
from evaluator.flags.layers.parse import parse
from evaluator.flags.model import (
    ABSENT,
    AUTHOR_KEY,
    COMMITTED_AT_KEY,
    DIGEST_KEY,
    EMPTY,
    HELD_FROM_KEY,
    PROVENANCE_KEYS,
    PROVENANCE_PREFIX,
    REVISION_KEY,
    Absent,
    Bucketing,
    Flag,
    FlagSet,
    Json,
    Scalar,
    State,
)
from evaluator.flags.syntax.document import Document, Format, format_of, read_document
from evaluator.flags.syntax.problems import Problem, Severity
from evaluator.flags.syntax.text import DEFAULT, Bounds

__all__ = [
    "ABSENT",
    "AUTHOR_KEY",
    "COMMITTED_AT_KEY",
    "DEFAULT",
    "DIGEST_KEY",
    "EMPTY",
    "HELD_FROM_KEY",
    "PROVENANCE_KEYS",
    "PROVENANCE_PREFIX",
    "REVISION_KEY",
    "Absent",
    "Bounds",
    "Bucketing",
    "Catalog",
    "Change",
    "Diff",
    "Document",
    "Flag",
    "FlagSet",
    "Format",
    "Json",
    "Layer",
    "Parsed",
    "Problem",
    "Scalar",
    "Severity",
    "State",
    "UnknownSourceError",
    "canonical",
    "check_rule",
    "diff",
    "digest",
    "format_of",
    "merge",
    "parse",
    "read_document",
    "read_layer",
]
