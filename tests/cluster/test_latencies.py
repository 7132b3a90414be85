"""Laws of hedging: its delay follows what was measured, and its number is bounded."""

from l2route.cluster.latencies import HEDGED_SHARE, MARGIN, MOST_HEDGES, N_NEEDED, Hedges, Latencies


def test_the_delay_follows_what_was_measured() -> None:
    """With enough calls a delay is beyond the 95th percentile of batches of that size."""
    seen = Latencies(first=1.0, least=0.005)
    assert seen.delay(10) == 1.0
    for i in range(100):
        seen.note(10, 0.01 + 0.0001 * i)
    assert seen.delay(10) == seen.delay(12)  # of the same size
    assert abs(seen.delay(10) - MARGIN * 0.0195) < 1e-9
    assert seen.delay(1000) == 1.0
    for _ in range(N_NEEDED):
        seen.note(1, 1e-5)
    assert seen.delay(1) == 0.005


def test_old_latencies_are_forgotten() -> None:
    """After many slow calls the delay is that of slow calls."""
    seen = Latencies()
    for seconds in (0.01, 2.0):
        for _ in range(1000):
            seen.note(1, seconds)
    assert seen.delay(1) == MARGIN * 2.0


def test_few_calls_are_sent_twice() -> None:
    """However many calls are late, a small share of them is sent to a second replica."""
    hedges = Hedges()
    n_taken = 0
    for _ in range(10_000):
        hedges.note_calls(1)
        n_taken += hedges.take()
    assert n_taken <= HEDGED_SHARE * 10_000 + MOST_HEDGES
    assert n_taken >= HEDGED_SHARE * 10_000 - 1
