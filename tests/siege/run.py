"""A siege: honest clients search and change an index while others attack its server all at once.

    python -m siege.run --seconds 600

Memory has to be flat and below a bound, no honest request may be refused or take too long, and
whatever was acknowledged has to be there. It uses loopback addresses only, and ends all processes
that it has started.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from threading import Event, Thread

import httpx
import numpy as np

from l2route.index import load
from serving import DIM, QUERIES, Server, saved_index, server_of
from siege.attacks import ATTACKS, MB
from soak.figures import Figures

N_SEARCHERS, N_CHANGERS = 2, 2
RATE = 10.0
"""Requests a second of an honest client."""
MOST_MEMORY = 1500 * MB
"""Of the server. Its process takes 100 MB, bodies eight times 64 MB, answers some 500 MB (decision
45)."""
LONG = 300.0
"""Seconds of a siege after which memory has to be flat; before, the process still grows."""
MOST_P99 = 5.0
"""Seconds of the slowest hundredth of honest answers; two cores, which the attackers share."""


class Client:
    """An honest client, which asks at a rate and reads its answers.

    Args:
        server: the server.
        number: of the client.
        figures: where answers are noted.
        is_over: set when it shall end.
    """

    def __init__(self, server: Server, number: int, figures: Figures, is_over: Event) -> None:
        self._client = httpx.Client(base_url=server.url, timeout=60)
        self._rng = np.random.default_rng(number)
        self._figures, self._is_over, self._next = figures, is_over, 10_000 * (number + 1)
        self.added: set[int] = set()
        self.gone: set[int] = set()

    def search(self) -> None:
        """Search until it is over."""
        while not self._is_over.wait(1 / RATE):
            query = QUERIES[self._rng.integers(len(QUERIES))].tolist()
            self._post("searches", "/search", {"queries": query, "k": 10, "ef": 64})

    def change(self) -> None:
        """Add and delete until it is over."""
        while not self._is_over.wait(1 / RATE):
            if len(self.added) > 20 and self._rng.random() < 0.4:
                id_ = self.added.pop()
                if self._post("changes", "/delete", {"ids": [id_]}):
                    self.gone.add(id_)
            else:
                self._next += 1
                row = np.full(DIM, self._next % 97, np.float32).tolist()
                if self._post("changes", "/add", {"vectors": [row], "ids": [self._next]}):
                    self.added.add(self._next)

    def _post(self, what: str, route: str, body: object) -> bool:
        try:
            with self._figures.timing(what):
                answer = self._client.post(route, json=body)
        except httpx.HTTPError as error:
            self._figures.blame(f"expected an answer to {route}, got {error!r}")
            return False
        if answer.status_code != 200:
            self._figures.blame(f"expected 200 of {route}, got {answer.status_code} {answer.text}")
        return answer.status_code == 200


def main() -> int:
    """Run a siege, and print what happened; 0 if all laws held."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    seconds: float = parser.parse_args().seconds
    figures = Figures()
    with tempfile.TemporaryDirectory() as made:
        path = saved_index(Path(made) / "index")
        with server_of(path, "--save-seconds", "2") as server:
            clients = besieged(server, figures, seconds)
            if seconds >= LONG:
                figures.check_memory()
            check_end(server, figures)
            server.process.kill()
        check_content(path, clients, figures)
    for what in ("searches", "changes"):
        if (slowest := figures.quantile(what, 0.99)) > MOST_P99:
            figures.blame(f"expected {what} within {MOST_P99} s, got {slowest:.1f} s")
    print(f"siege of {seconds:g} s by {', '.join(ATTACKS)}")
    print(figures.table())
    print("FAIL" if figures.faults else "PASS", flush=True)
    return 1 if figures.faults else 0


def besieged(server: Server, figures: Figures, seconds: float) -> list[Client]:
    """Let honest clients and attackers do what they do; return those who changed something."""
    is_over = Event()
    clients = [Client(server, n, figures, is_over) for n in range(N_SEARCHERS + N_CHANGERS)]
    works = [each.search for each in clients[:N_SEARCHERS]]
    works += [each.change for each in clients[N_SEARCHERS:]]
    threads = [Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    command = [sys.executable, "-m", "siege.attacks"]
    attackers = {
        name: subprocess.Popen(
            [*command, name, str(server.port), str(seconds)], stdout=subprocess.PIPE, text=True
        )
        for name in ATTACKS
    }
    try:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(min(1.0, seconds / 40))
            figures.weigh(0, server.process.pid)
        for name, each in attackers.items():
            said, _ = each.communicate(timeout=120)
            figures.count(f"rounds of {name}", int(said or 0))
            if each.returncode:
                figures.blame(f"expected the attack {name} to end, got {each.returncode}")
    finally:
        is_over.set()
        for each in attackers.values():
            each.kill()
        for thread in threads:
            thread.join()
    return clients[N_SEARCHERS:]


def check_end(server: Server, figures: Figures) -> None:
    """The server works, and never took more memory than is stated."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    most = 1024 * int(status.partition("VmHWM:")[2].split()[0])
    figures.count("most memory, MB", most // MB)
    if most > MOST_MEMORY:
        figures.blame(f"expected at most {MOST_MEMORY // MB} MB, got {most // MB}")
    if server.client.get("/health").json() != {"status": "ok"}:
        figures.blame(f"expected a healthy server, got {server.client.get('/health').text}")


def check_content(path: Path, clients: list[Client], figures: Figures) -> None:
    """All that was acknowledged is there, and nothing that honest clients did not do."""
    held = set(load(path))
    added = set[int]().union(*(each.added for each in clients))
    gone = set[int]().union(*(each.gone for each in clients))
    figures.count("vectors added and kept", len(added))
    if lost := added - held:
        figures.blame(f"expected ids that were added, got none of {sorted(lost)[:5]}")
    if back := gone & held:
        figures.blame(f"expected ids to be gone that were deleted, got {sorted(back)[:5]}")
    if foreign := set(range(300)) - held:
        figures.blame(f"expected the first vectors, got none of {sorted(foreign)[:5]}")


if __name__ == "__main__":
    sys.exit(main())
