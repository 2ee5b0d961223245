"""Helper processes are started once, and not for each test."""

from tests.warm_helpers import end_of_helpers, warm_helpers

__all__ = ["end_of_helpers", "warm_helpers"]
