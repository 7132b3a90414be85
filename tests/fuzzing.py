"""The effort of randomised tests: 1 in CI, more by `make fuzz`."""

import os

EFFORT = int(os.environ.get("L2ROUTE_FUZZ", "1"))
"""Factor of the numbers of trials."""
