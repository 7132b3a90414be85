"""How long tests by chance take: as in CI, or many times that, as `make fuzz` asks for."""

import os

EFFORT = int(os.environ.get("L2ROUTE_FUZZ", "1"))
"""What the numbers of trials are multiplied by."""
