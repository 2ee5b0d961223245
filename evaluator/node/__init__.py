"""One evaluator for all pods of a node: each pod gets the flag sets that it may have, and no others."""
