"""Arguments, output and connections that several verbs share."""
