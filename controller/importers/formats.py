"""The formats that can be imported, and the import of files from bytes to flags that lint accepts. Pure."""

from __future__ import annotations

import importlib
import re
import tomllib
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import orjson

from controller.importers.model import ONLY, Imported, ImportRefusal
from controller.importers.reading import (
    ImportOptions,
    ImportReading,
    NoExactForm,
    SourceFile,
    UnreadableFile,
    flags_needed,
)
from controller.importers.writer import definitions
from evaluator.flags.document import read_document
from evaluator.flags.merge import parse
from evaluator.flags.problems import Severity
from evaluator.flags.text import Bounds, quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from controller.importers.model import ImportedFlag

BOUNDS: Final = Bounds(document_bytes=64 * 1024 * 1024, nodes=10_000_000, depth=60)
"""Bounds of a file that is imported."""
_FOLDER: Final = re.compile(r"\w[\w.-]{0,99}", re.ASCII)
"""Names of environments, each of which is a folder of definitions."""
_PORTION: Final = 500
"""Flags that lint judges at once."""


@dataclass(frozen=True, slots=True)
class ImportFormat:
    """A format: `module` has `read(files, reading)`, which puts what it finds into the ImportReading."""

    module: str
    summary: str
    approximations: Mapping[str, str]
    """Arguments of `--allow`, with what each changes."""


FORMATS: Final[Mapping[str, ImportFormat]] = {
    "launchdarkly": ImportFormat(
        "launchdarkly",
        "LaunchDarkly: answers of GET /api/v2/flags/PROJECT, /api/v2/segments/PROJECT/ENV, or SDKs' data",
        {
            "experiments": "an experiment is imported as a rollout with its weights; nothing is measured",
            "short-versions": "2-rc and 2.0-rc in contexts are no versions; 2.0.0-rc, 2 and 2.0 are",
            "numeric-dates": "dates in contexts count only as numbers, in milliseconds since 1970",
        },
    ),
    "configcat": ImportFormat(
        "configcat",
        "ConfigCat: config JSON of SDKs, version 6, each of one environment",
        {
            "decimal-points": "texts such as 1,5 in contexts are no numbers; 1.5 is",
            "numeric-dates": "dates in contexts count only as numbers, in seconds since 1970",
            "json-lists": 'texts such as ["a"] in contexts are no lists; lists are',
        },
    ),
    "featurevisor": ImportFormat(
        "featurevisor",
        "Featurevisor: files of a project in its folders features, segments and groups",
        {
            "plain-versions": "1.2.x, 1.2.3.4 and >1.2 in contexts are no versions; 1.2.3, 1.2 and v1 are",
            "numeric-dates": "dates in contexts count only as numbers, in milliseconds since 1970",
        },
    ),
    "unleash": ImportFormat(
        "unleash",
        "Unleash: exports, each of one environment; or the answer of /api/client/features",
        {
            "random": "users who are divided anew at each call are divided for good, by their ids",
            "case-sensitive": "texts that are compared without regard to case are compared with it",
        },
    ),
    "flipt": ImportFormat(
        "flipt",
        "Flipt v2: features.yaml of a namespace, one file an environment",
        {
            "plain-texts": "parts of texts are looked for in texts alone, with the spaces around them",
            "numeric-dates": "dates in contexts count only as numbers, in seconds since 1970",
        },
    ),
    "featuremanagement": ImportFormat(
        "featuremanagement",
        "Microsoft FeatureManagement, schema 2: appsettings, or an export of App Configuration",
        {"random-percentage": "the filter Percentage divides users by their keys, and not calls at random"},
    ),
    "go-feature-flag": ImportFormat(
        "go_feature_flag",
        "GO Feature Flag: a file of flags in YAML, JSON or TOML, one file an environment",
        {
            "case-sensitive": "texts that are compared without regard to case are compared with it",
            "nested-attributes": "an attribute in an object that is missing is missing, as any other",
        },
    ),
    "growthbook": ImportFormat(
        "growthbook",
        "GrowthBook: the answer of GET /api/features/CLIENTKEY",
        {
            "experiments": "an experiment is imported as a rollout with its weights; nothing is measured",
            "namespaces": "users of one experiment of a namespace may be in another one, too",
            "semantic-versions": "versions are semantic ones: 1.2 is 1.2.0, and a.b and 1.2.3.4 are none",
        },
    ),
    "flagsmith": ImportFormat(
        "flagsmith",
        "Flagsmith: an export of features, or the environment document (GET /api/v1/environment-document/)",
        {"fractions": "whole numbers in contexts are compared with fractions, too"},
    ),
    "openfeature": ImportFormat(
        "openfeature", "OpenFeature's flag manifest, a file: each flag with its default value for all", {}
    ),
}


def import_files(
    format_name: str, files: Iterable[tuple[str, str, bytes]], options: ImportOptions
) -> Imported:
    """Read files of one format (environment, name and content), and refuse what lint would refuse. Raises
    UnreadableFile. A file's environment may be empty.
    """
    reading = ImportReading(options)
    reader = importlib.import_module(f"controller.importers.{FORMATS[format_name].module}")
    by_environment: dict[str, list[SourceFile]] = defaultdict(list)
    for environment, name, data in files:
        by_environment[environment].append(_read(name, data))
    try:
        while by_environment:
            environment, group = by_environment.popitem()
            reading.options = replace(options, environment=environment)
            reader.read(group, reading)
            # What was read is several times as large as what is kept of it.
            del group
    except NoExactForm as refused:
        raise UnreadableFile(f"{refused.place}: {refused.message}") from None
    except RecursionError:
        raise UnreadableFile("the file is nested too deep") from None
    imported = reading.result()
    for name in {name for flag in imported.flags for name in flag.targeting} - {ONLY}:
        if not _FOLDER.fullmatch(name):
            raise UnreadableFile(f"the environment {quote(name)} is no name of a folder; name it in the call")
    while refusals := tuple(_refused_by_lint(imported)):
        reading.refusals += refusals
        imported = reading.result()
    return imported


def _read(name: str, data: bytes) -> SourceFile:
    if name.endswith(".toml"):
        data = _json_of_toml(name, data)
    document = read_document(data, file=name, bounds=BOUNDS)
    for problem in document.problems:
        if problem.severity is Severity.ERROR:
            raise UnreadableFile(str(problem))
    return SourceFile(name, document.value)


def _json_of_toml(name: str, data: bytes) -> bytes:
    """JSON with the same content; times are texts. Raises UnreadableFile."""
    if len(data) > BOUNDS.document_bytes:
        raise UnreadableFile(f"{name}: is larger than {BOUNDS.document_bytes} bytes")
    try:
        return orjson.dumps(tomllib.loads(data.decode()))
    except (ValueError, TypeError, RecursionError) as error:
        raise UnreadableFile(f"{name}: is no TOML: {error}") from None


def _refused_by_lint(imported: Imported) -> Iterator[ImportRefusal]:
    """Flags that lint would refuse, each once."""
    refused: dict[str, ImportRefusal] = {}
    for environment in {name for flag in imported.flags for name in flag.targeting}:
        for flags in _groups(imported.flags):
            part = replace(imported, flags=flags)
            for refusal in _refused_of(part, environment):
                refused.setdefault(refusal.name, refusal)
    yield from refused.values()


def _groups(flags: Sequence[ImportedFlag]) -> Iterator[tuple[ImportedFlag, ...]]:
    """Portions of flags that lint can judge alone: all that need each other are in one."""
    by_key = {flag.key: flag for flag in flags}
    linked = {flag.key for flag in flags if flags_needed(flag)}
    linked |= {key for name in linked for key in flags_needed(by_key[name])}
    yield tuple(flag for flag in flags if flag.key in linked)
    alone = [flag for flag in flags if flag.key not in linked]
    for start in range(0, len(alone), _PORTION):
        yield tuple(alone[start : start + _PORTION])


def _refused_of(imported: Imported, environment: str) -> Iterator[ImportRefusal]:
    flags = imported.flags
    if not flags:
        return
    parsed = parse(orjson.dumps(definitions(imported, environment)), file="imported.json")
    if parsed.whole_bad and len(flags) > 1:
        middle = len(flags) // 2
        yield from _refused_of(replace(imported, flags=flags[:middle]), environment)
        yield from _refused_of(replace(imported, flags=flags[middle:]), environment)
        return
    problems = {problem.flag: problem.message for problem in reversed(parsed.problems)}
    other = problems.get(None, "it has a fault")
    bad = {flags[0].key} if parsed.whole_bad else parsed.bad | parsed.warned
    for flag in flags:
        if flag.key in bad:
            message = f"as a definition of ours: {problems.get(flag.key, other)}"
            yield ImportRefusal(flag.key, flag.place, message)
