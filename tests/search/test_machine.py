"""Laws of what a search is expected to take."""

from __future__ import annotations

from l2route.search.machine import FOOTPRINTS, TYPICAL, Machine


def test_more_bytes_take_more_time() -> None:
    """Rows take longer if they are longer, or if there are more of them than caches hold."""
    times = [TYPICAL.read_ns(n_bytes, 100_000) for n_bytes in (64, 128, 192, 384)]
    assert times == sorted(times)
    assert len(set(times)) == 4
    levels = [TYPICAL.read_ns(128, footprint // 128) for footprint in FOOTPRINTS]
    assert levels == sorted(levels)
    assert levels[0] < levels[-1]


def test_a_machine_is_measured() -> None:
    """All times of a measured machine are positive, and memory is not faster than caches."""
    machine = Machine.measured()
    assert 0 < machine.line_ns[0] <= machine.line_ns[1] <= machine.line_ns[2]
    assert min(machine.hop_ns, machine.rerank_ns, machine.product_ns, machine.query_ns) > 0
