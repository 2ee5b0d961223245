"""One flag: what it serves and to whom, its environments, its history, and what-if. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.page.flag_facts import definitions_of, other_metadata
from controller.page.flag_rows import flag_row, metadata_in
from controller.page.rendering import page
from controller.page.visit import NotShown
from controller.page.what_if import InvalidContextError, attributes_of, read_context, what_if
from evaluator.flags.model import CONFIDENTIAL_KEY, EMPTY

if TYPE_CHECKING:
    from controller.page.visit import Visit
    from controller.page.what_if import WhatIf
    from evaluator.http.messages import Response

COLOURS: Final = 6
"""Colours of variants in the style sheet."""


def flag_view(visit: Visit) -> Response:
    """`?set=&key=`; a POST has the context of a what-if in its form."""
    shown, key = visit.shown_set, visit.query.get("key", "")
    state = shown.flags.get(key)
    if state is None:
        raise NotShown(f"There is no flag {key!r} in {shown.name}.")
    flag, metadata = state.flag, metadata_in(shown, key)
    variants = EMPTY if flag is None else flag.variants
    answer, complaint = (None, "") if flag is None else _what_if(visit, key)
    return page(
        "flag.html",
        visit=visit,
        shown=shown,
        key=key,
        row=flag_row(shown, key),
        colours={variant: place % COLOURS for place, variant in enumerate(variants)},
        definitions=definitions_of(state, shown.served),
        variants=variants,
        confidential=CONFIDENTIAL_KEY in metadata,
        metadata=other_metadata(metadata),
        history=visit.source.history(shown.name, key),
        environments=[
            (other, flag_row(other, key) if key in other.flags else None)
            for other in visit.source.environments(shown.name, key)
        ],
        rates=visit.source.rates(shown.name, [key]).get(key),
        attributes=() if flag is None else attributes_of(flag, shown.served),
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
