"""Ray, imported when it is needed, and a connection to a cluster."""

from __future__ import annotations

import logging
import os
from typing import Any

from l2route.extras import install

LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Variable by which Ray takes 127.0.0.1 for the address of this machine, if it is 0."""
Address = str | None
"""Of a Ray cluster: "auto" for the one of this machine, None for the one that this process has
joined, or a new one on this machine."""


def import_ray() -> Any:
    """The package ray; an error that says how to install it if there is none."""
    try:
        import ray
    except ImportError as error:
        raise ImportError(f"clusters need: {install('ray')}") from error
    return ray


def connected(address: Address = None) -> Any:
    """Ray, connected to a cluster, by default of this machine, to a new one if there is none.

    A new one listens on 127.0.0.1, unless ray was imported before. The address `local` is for a
    new one in any case.
    """
    is_here = address in (None, "local")
    if is_here:
        os.environ.setdefault(LOOPBACK, "0")  # read when ray is imported
    ray = import_ray()
    if not ray.is_initialized():
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.WARNING}
        if is_here:
            options |= {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
        ray.init(address=address, **options)
    return ray
