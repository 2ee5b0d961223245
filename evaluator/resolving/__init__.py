"""One evaluation: compiled rules, a context and a flag to a value, a variant and a reason. Pure."""
