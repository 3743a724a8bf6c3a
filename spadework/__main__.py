"""`python -m spadework` is `spadework`."""

import sys

from spadework.cli import main

sys.exit(main())
