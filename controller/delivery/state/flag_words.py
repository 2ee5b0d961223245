"""What people are told of one flag before they read its rule: one sentence a fact. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.delivery.state.state_words import candidate_text, end_text, override_text, users_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller.delivery.state.flag_state import FlagState


def flag_notes(state: FlagState) -> tuple[str, ...]:
    """Why not everybody gets the newest definition of a flag, by its own rules; empty: everybody does."""
    return (*_override_notes(state), *_rollout_notes(state), *_held_notes(state))


def new_users_text(state: FlagState) -> str:
    """Who gets the new one of two definitions: `10%`, `an audience`."""
    if state.candidate is not None:
        return users_text(state.candidate).removesuffix(" of users")
    share = "0" if state.rollout is None else state.rollout.share
    return "an audience" if share == "0" else f"{share}%"


def _override_notes(state: FlagState) -> Iterator[str]:
    layer, mark = state.override_layer, state.override
    if layer is None and mark is None:
        return
    if layer is not None:
        end = end_text(layer, filter(None, (state.candidate,)))
        yield "; ".join(filter(None, (override_text(layer), end)))
    elif mark is not None:
        until = f" until {mark.until}" if mark.until else ""
        yield f"{mark.name}{until}: {mark.reason}"


def _rollout_notes(state: FlagState) -> Iterator[str]:
    if state.candidate is not None:
        yield candidate_text(state.candidate)
    elif state.rollout is not None:
        yield f"FlagRollout {state.rollout.name}: {state.rollout.position}"


def _held_notes(state: FlagState) -> Iterator[str]:
    if state.flag is None and state.kept:
        yield "its newest definition is bad: evaluators that have an earlier one serve that"
    elif state.flag is None:
        yield "not served: it has no good definition"
    elif state.held_from:
        yield f"served as in {state.held_from}: its newest definition is bad"
