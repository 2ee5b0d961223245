"""`python -m evaluator start …`."""

import sys

from evaluator.cli import main

if __name__ == "__main__":
    sys.exit(main())
