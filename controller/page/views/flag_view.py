"""One flag: what it serves and to whom, its environments, its history, and what-if. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.page.flag_facts import metadata_of, other_metadata, rule_clauses
from controller.page.flag_rows import flag_row
from controller.page.rendering import page
from controller.page.visit import NotShown
from controller.page.what_if import InvalidContextError, attributes_of, read_context, what_if
from evaluator.flags.model import CONFIDENTIAL_KEY

if TYPE_CHECKING:
    from controller.page.visit import Visit
    from controller.page.what_if import WhatIf
    from evaluator.http.messages import Response

COLOURS: Final = 6
"""Colours of variants in the style sheet."""


def flag_view(visit: Visit) -> Response:
    """`?set=&key=`; a POST has the context of a what-if in its form."""
    shown, key = visit.shown_set, visit.query.get("key", "")
    flag = shown.flag_set.flags.get(key)
    if flag is None:
        raise NotShown(f"There is no flag {key!r} in {shown.name}.")
    answer, complaint = _what_if(visit, key)
    metadata = metadata_of(flag, shown.flag_set)
    return page(
        "flag.html",
        visit=visit,
        shown=shown,
        flag=flag,
        row=flag_row(shown, key),
        colours={variant: place % COLOURS for place, variant in enumerate(flag.variants)},
        clauses=rule_clauses(flag, shown.served),
        variants=None if CONFIDENTIAL_KEY in metadata else flag.variants,
        metadata=other_metadata(metadata),
        history=visit.source.history(shown.name, key),
        environments=[
            (other, flag_row(other, key) if key in other.flag_set.flags else None)
            for other in visit.source.environments(shown.name, key)
        ],
        rates=visit.source.rates(shown.name, [key]).get(key),
        attributes=attributes_of(flag, shown.served),
        answer=answer,
        complaint=complaint,
    )


def _what_if(visit: Visit, key: str) -> tuple[WhatIf | None, str]:
    """(The answer, or None where nothing was asked; what is wrong with the question)."""
    if not visit.has_form:
        return None, ""
    try:
        context = read_context(visit.form)
    except InvalidContextError as error:
        return None, str(error)
    return what_if(visit.shown_set.served, key, context, int(visit.now.timestamp())), ""
