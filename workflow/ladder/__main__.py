"""`ladder STEP …`: every step of the pipeline, as the workflow runs it and by hand."""

import sys

from ladder.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
