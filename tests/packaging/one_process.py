"""faiss, torch, numpy and l2route in one process, at work in several threads at once.

    python one_process.py faiss torch l2route numpy     # in this order

It prints the OpenMP runtimes that are loaded, and fails if an answer differs from that of one
thread alone. A deadlock is for the caller to notice.
"""

import importlib
import re
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

N_ROUNDS = 5
RUNTIME = re.compile(r"\S*/(?:libgomp|libomp|libiomp5)\S*")
MODULES = {name: importlib.import_module(name) for name in sys.argv[1:]}
faiss, torch, l2route, np = (MODULES[name] for name in ("faiss", "torch", "l2route", "numpy"))


def runtimes() -> list[str]:
    """Files of OpenMP runtimes that are mapped into this process."""
    return sorted(set(RUNTIME.findall(Path("/proc/self/maps").read_text())))


def search_by_l2route(vectors: Any) -> Callable[[], Any]:
    """Searches on all cores: threads of the core."""
    index = l2route.RoutingIndex.build(vectors[:2000])
    return lambda: index.search(vectors[:500], k=10, ef=64).ids


def search_by_faiss(vectors: Any) -> Callable[[], Any]:
    """Exact searches on all cores: OpenMP and BLAS."""
    index = faiss.IndexFlatL2(vectors.shape[1])
    index.add(vectors)
    return lambda: index.search(vectors[:100], 10)[1]


def step_of_torch(vectors: Any) -> Callable[[], Any]:
    """The gradient of a loss, on all cores: OpenMP and BLAS."""
    inputs = torch.from_numpy(vectors)

    def gradient() -> Any:
        weights = torch.ones(vectors.shape[1], 64, requires_grad=True)
        torch.logsumexp(inputs @ weights, dim=1).mean().backward()
        return weights.grad.numpy()

    return gradient


def product_of_numpy(vectors: Any) -> Callable[[], Any]:
    """A product of matrices on all cores: BLAS."""
    return lambda: vectors[:500] @ vectors.T


def repeat(work: Callable[[], Any], expected: Any) -> int:
    """Do the same work again and again, and compare the answers."""
    for _ in range(N_ROUNDS):
        np.testing.assert_allclose(work(), expected, rtol=1e-4, atol=1e-4)
    return N_ROUNDS


def main() -> None:
    """Work alone first, then all at once, each kind of work in two threads."""
    vectors = np.random.default_rng(0).normal(size=(10_000, 32)).astype(np.float32)
    makers = (search_by_l2route, search_by_faiss, step_of_torch, product_of_numpy)
    works = [make(vectors) for make in makers]
    answers = [work() for work in works]
    with ThreadPoolExecutor(2 * len(works)) as pool:
        tasks = [pool.submit(repeat, work, a) for work, a in zip(works, answers, strict=True)] + [
            pool.submit(repeat, work, a) for work, a in zip(works, answers, strict=True)
        ]
        assert [task.result() for task in tasks] == [N_ROUNDS] * len(tasks)
    print(*runtimes(), sep="\n")


if __name__ == "__main__":
    main()
