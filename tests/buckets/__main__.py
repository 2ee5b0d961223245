"""Fetch and build the servers of `tests.buckets` if need be; say so where that cannot be done."""

import subprocess
import sys

from tests.buckets import azure, google

if __name__ == "__main__":
    for fetch in (google.fetch, azure.fetch):
        try:
            sys.stdout.write(f"{fetch()}\n")
        except (subprocess.SubprocessError, OSError) as error:
            sys.stderr.write(f"==> TESTS OF BUCKETS WILL BE SKIPPED: a server cannot be had here: {error}\n")
