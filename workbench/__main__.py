"""``python -m workbench`` is the command ``workbench``."""

from __future__ import annotations

import sys

from workbench.cli import main

# A recording starts its load generator as a new process, which imports this module under another name.
if __name__ == "__main__":
    sys.exit(main())
