"""A soak: servers, a plain process and a command change one index, and anything happens to them.

    python -m soak.run --seconds 600

Two servers with four clients that change the index and two that search, a plain process, and a
command that compresses it. They are killed, ended and stopped; the disk is full for seconds;
snapshots are taken and restored. Whatever was acknowledged has to be there: nothing lost, nothing
twice, nothing undone. It uses loopback addresses only, and ends all processes that it has started.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread

from soak.clients import Changer, CommandWork, PlainWork, Searcher
from soak.small_disk import MARK, SmallDisk, rerun_with_disk
from soak.stage import Stage, repeatedly
from soak.troubles import Troubles

N_CHANGERS, N_SEARCHERS = 4, 2
MOST_MORE_SECONDS = 300
"""Seconds after which a soak that does not end is ended."""


def main() -> int:
    """Run a soak, and print what happened; 0 if all laws held."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--rate", type=float, default=20.0, help="Requests a second of a client.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--megabytes", type=int, default=64, help="Size of the disk.")
    given = parser.parse_args()
    place = os.environ.get(MARK)
    if place is not None:
        return soak(given, SmallDisk(Path(place)), Path(place) / "index")
    with tempfile.TemporaryDirectory() as made:
        code = rerun_with_disk(Path(made), given.megabytes)
        if code is not None:
            return code
        print("left out: a full disk, as this system does not allow a mount namespace")
        return soak(given, SmallDisk(None), Path(made) / "index")


def soak(given: argparse.Namespace, disk: SmallDisk, path: Path) -> int:
    """Run a soak in a directory on a disk."""
    faulthandler.dump_traceback_later(given.seconds + MOST_MORE_SECONDS, exit=True)
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(path, Path(folder), disk, given.rate)
        changers = [Changer(stage, 10 * given.seed + i) for i in range(N_CHANGERS)]
        searchers = [Searcher(stage, 10 * given.seed + 5 + i) for i in range(N_SEARCHERS)]
        plain, compressing = PlainWork(stage, given.seed), CommandWork(stage, given.seed)
        troubles = Troubles(stage, changers, plain, compressing, given.seconds, given.seed)
        try:
            clients = [each.work for each in changers] + [each.work for each in searchers]
            others = [plain.work, compressing.work, troubles.work]
            _run(stage, clients + others, given.seconds)
            if not stage.figures.faults:
                troubles.finish()
                stage.figures.check_memory()
        finally:
            plain.close()
            for server in stage.servers:
                server.close()
    is_fine = not stage.figures.faults
    print(f"soak of {given.seconds:g} s, seed {given.seed}, disk that can be full: {disk.exists}")
    print(stage.figures.table())
    print("PASS" if is_fine else "FAIL", flush=True)
    faulthandler.cancel_dump_traceback_later()
    return 0 if is_fine else 1


def _run(stage: Stage, works: list[Callable[[], None]], seconds: float) -> None:
    """Do all of it at the same time."""
    threads = [Thread(target=repeatedly, args=(stage, work), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    end = time.monotonic() + seconds
    while not stage.is_over.is_set() and time.monotonic() < end:
        stage.is_over.wait(min(1.0, seconds / 40))
        for server in stage.servers:
            stage.figures.weigh(server.number, server.server.process.pid)
    stage.is_over.set()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    sys.exit(main())
