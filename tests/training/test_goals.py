"""Laws of one space for several budgets and numbers of neighbours."""

from dataclasses import replace

import numpy as np
import pytest

from l2route import RoutingIndex
from l2route.search.limits import Limits
from l2route.training.aim import BudgetAim
from l2route.training.base_queries import draw_targets
from l2route.training.loop import learn_space
from l2route.training.options import Goal, LearnOptions
from l2route.training.oracle import HopOracle
from l2route.training.problem import CHOOSING, Problem, pose
from l2route.training.report import MARGIN, Contest, Reached
from l2route.training.rollout import Rollouts, WalkOptions
from l2route.training.start import make_model, plain_space
from learning import OPTIONS, losses, words

SEVERAL = replace(OPTIONS, budget=(80, 160, 320), k=(1, 10), rerank=None, steps=400, batch_size=400)
PINNED = {
    (80, 1): (0.330, 0.454),
    (160, 1): (0.646, 0.738),
    (320, 1): (0.848, 0.870),
    (80, 10): (0.297, 0.345),
    (160, 10): (0.597, 0.606),
    (320, 10): (0.803, 0.799),
}
"""Recall without learning and with it by budget and k, on 500 queries; tolerance 0.03."""


@pytest.fixture(scope="module")
def several(index: RoutingIndex) -> Problem:
    """Training and validation queries with targets for k = 1 and k = 10."""
    return pose(index.graph, index.base, words().learn, SEVERAL)


def test_a_run_for_several_goals_is_pinned(several: Problem) -> None:
    """One space gains at small budgets, and loses next to nothing at large ones for any k."""
    space, report = learn_space(several, SEVERAL)
    found = {(each.goal.budget, each.goal.k): each for each in report.reached}
    for key, (plain, learned) in PINNED.items():
        assert found[key].plain == pytest.approx(plain, abs=0.03)
        assert found[key].learned == pytest.approx(learned, abs=0.03)
    assert report.contests[0].is_won
    assert report.learned == np.mean([each.learned for each in report.reached])
    assert str(report).startswith(f"recall@1 of {found[80, 1].plain:.3f} → ")
    assert space.gain is not None
    assert (space.gain.budget, space.gain.k) == (160, 1)
    assert space.gain.learned == found[160, 1].learned


def test_searches_rerank_as_was_learned(several: Problem) -> None:
    """A search of the space within a budget has the rerank of the goal, unless it is given."""
    space, report = learn_space(several, replace(SEVERAL, steps=2))
    for each in report.reached:
        goal = each.goal
        assert Limits(goal.budget).resolve(space, goal.k)[2] == goal.rerank
        assert Limits(goal.budget, rerank=20).resolve(space, goal.k)[2] == 20
    fixed, _ = learn_space(several, replace(SEVERAL, steps=2, rerank=12))
    assert [Limits(budget).resolve(fixed, 1)[2] for budget in (48, 1000)] == [12, 12]


def test_targets_of_each_k() -> None:
    """Each target is drawn among the k nearest, all of them at times; one k has all its targets."""
    nearest = np.arange(3000)[:, None] * 10 + np.arange(10)  # ranks are the last digits
    drawn = draw_targets(nearest, (1, 4, 10), seed=3)
    assert drawn.shape == (3000, 3)
    np.testing.assert_array_equal(drawn // 10, np.repeat(np.arange(3000)[:, None], 3, axis=1))
    for column, k in zip(drawn.T, (1, 4, 10), strict=True):
        counts = np.bincount(column % 10, minlength=10)
        assert (counts[:k] > 0.8 * 3000 / k).all()
        assert not counts[k:].any()
    np.testing.assert_array_equal(draw_targets(nearest, (10,), seed=3), nearest)


def test_the_targets_of_a_problem(several: Problem, problem: Problem) -> None:
    """The first target is the nearest neighbour, as if it were alone."""
    assert several.target_ks == (1, 10)
    n = len(several.train) - np.count_nonzero(several.hidden >= 0)
    np.testing.assert_array_equal(several.targets[:n, 0], problem.targets[:n, 0])
    assert several.nearest.shape[1] == 10


def test_a_batch_of_several_goals_has_the_gradients_of_its_parts(several: Problem) -> None:
    """Walks of each kind, taught alone, add up to the gradient of the whole batch."""
    goals = SEVERAL.goals
    model = make_model(several, SEVERAL, goals, plain_space(several.base, None), 30.0)
    oracle = HopOracle(several.graph, several.targets.ravel(), n_threads=1)
    walks = {
        goal: WalkOptions.of(SEVERAL, goal.budget - goal.rerank, goal.rerank, 50) for goal in goals
    }
    ways = [[walks[goal] for goal in goals if goal.k == k] for k in several.target_ks]
    queries = several.train * np.float32(several.scale)
    batch = np.random.default_rng(0).permutation(several.targets.size)[:60]

    def taught(kinds: list[list[WalkOptions]], part: np.ndarray) -> list[np.ndarray]:
        model.zero_grad()
        rollouts = Rollouts(several.graph, queries, several.hidden, oracle, kinds)
        rollouts.teach(model, part, 7)  # type: ignore[arg-type] # it is a filter
        grads = [p.grad for p in model.parameters() if p.requires_grad]
        return [len(part) * grad.numpy().copy() for grad in grads if grad is not None]

    whole = taught(ways, batch)
    summed = [np.zeros_like(each) for each in whole]
    for position, target in enumerate(batch):
        way = ways[target % 2][position % 3]
        for total, own in zip(summed, taught([[way], [way]], batch[[position]]), strict=True):
            total += own
    for each, total in zip(whole, summed, strict=True):
        np.testing.assert_allclose(each, total, rtol=1e-3, atol=1e-3 * np.abs(total).max())


def test_several_goals_run_the_same_on_any_number_of_threads(several: Problem) -> None:
    """The same seed gives the same losses on one thread and on two."""
    options = replace(SEVERAL, steps=4)
    one, two = (losses(several, replace(options, n_threads=n)) for n in (1, 2))
    assert one == two


def test_states_are_chosen_by_the_mean_over_goals(several: Problem) -> None:
    """The validated recall of an event is the mean of the recalls of all goals."""
    options = replace(SEVERAL, steps=1, learning_rate=1e-9)
    event = losses(several, options)[-1]
    space, _ = learn_space(several, options)
    recalls = [several.recalls(space, goal, CHOOSING).mean() for goal in SEVERAL.goals]
    assert event.recall == pytest.approx(np.mean(recalls), abs=0.01)


def test_every_goal_is_contested(several: Problem) -> None:
    """The mean has to be better, with confidence, and no goal worse by half a point."""
    aim = BudgetAim(several, SEVERAL)
    plain = plain_space(several.base, None)
    contests = aim.contests(plain, plain)
    assert [each.goal for each in contests] == [None, *SEVERAL.goals]
    for each in contests:
        assert each.ours == each.theirs
    assert [each.is_won for each in contests] == [False] + [True] * len(SEVERAL.goals)
    (only,) = BudgetAim(several, OPTIONS).contests(plain, plain)
    assert only.goal is None


def test_a_loss_at_one_goal_is_refused() -> None:
    """Half a point less is refused at a goal, an equal recall is not."""
    rng, goal = np.random.default_rng(0), Goal(100, 8)
    theirs = (rng.random(4000) < 0.9).astype(np.float64)
    worse = np.where(rng.random(4000) < 0.01, 0.0, theirs)
    assert Contest.of_recalls("plain", theirs, theirs, goal).is_won
    assert not Contest.of_recalls("plain", theirs, theirs).is_won
    assert not Contest.of_recalls("plain", theirs, worse, goal).is_won
    assert worse.mean() < theirs.mean() - MARGIN


def test_the_reason_names_the_goal(several: Problem) -> None:
    """If a goal is lost, the report says at which budget and k, and against which space."""
    _, report = learn_space(several, replace(SEVERAL, steps=1))
    won = Contest("plain", 0.5, 0.6, 0.001)
    lost = Contest("plain", 0.5, 0.4, 0.9, Goal(192, 12, 10))
    reached = tuple(Reached(goal, 0.5, 0.6) for goal in SEVERAL.goals)
    text = str(replace(report, contests=(won, lost), reached=reached))
    assert text.endswith("it is worse than the space 'plain' in recall@10 at 192")


def test_goals_whose_budget_does_not_pay_for_a_projection_are_left_out(several: Problem) -> None:
    """A rival of 40 dimensions is compared where the budget pays for its projection."""
    short, plain = plain_space(several.base, 40), plain_space(several.base, None)
    options = replace(SEVERAL, budget=(45, 160, 320))
    contests = BudgetAim(several, options).contests(plain, short)
    assert [each.goal for each in contests] == [None, *options.goals[2:]]
    assert BudgetAim(several, replace(SEVERAL, budget=45)).contests(plain, short) == []


def test_the_default_is_for_several_budgets(index: RoutingIndex) -> None:
    """Without a budget `learn` serves 128, 256 and 512, for k = 1 and k = 10."""
    report = RoutingIndex(index.base, index.graph).learn(words().learn, steps=1, n_validation=100)
    assert [each.goal for each in report.reached] == list(LearnOptions().goals)
