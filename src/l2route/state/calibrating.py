"""Calibrating: validation queries, and the settings that are measured on them."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any

from l2route.search.guarantee import Guarantee
from l2route.search.setting import Setting
from l2route.search.validation import Validation, warn_of_doubts
from l2route.state import changes
from l2route.state.current import Current
from l2route.state.report import checked_report
from l2route.state.state import IndexState


class Calibrating:
    """What reaches a recall, measured on validation queries."""

    _current: Current

    def validate_with(self, queries: object) -> None:
        """Keep the first 2,000 queries, with their true neighbours, to measure settings on.

        `learn` keeps some of its own. Settings measured before are dropped.
        """

        def validated(state: IndexState) -> IndexState:
            validation = Validation.of(state.base, queries)
            warn_of_doubts(validation, state.base, stacklevel=5)  # the caller of `validate_with`
            return changes.validated(state, validation)

        self._current.change(validated)

    def setting(
        self,
        recall: float,
        k: int = 10,
        *,
        guarantee: Guarantee = "mean",
        space: str | None = None,
        n_threads: int = 0,
    ) -> Setting:
        """Find the cheapest limits, by beam width, slack or learned rule, that reach a recall@k.

        Measured on the validation queries once, and again when vectors of more than a tenth of the
        index have been added or deleted; `save` keeps the result.

        Args:
            recall: recall@k to reach, in (0, 1].
            k: answers per query.
            guarantee: what reaches the recall: the mean of the queries, or 95% of them ("p95").
                For the latter, so few of the validation queries may miss it that at most 5% of all
                do, with a confidence of 95%.
            space: name of the space to route in; by default the last of `spaces`.
            n_threads: threads to measure with; 0 for all cores.
        """
        state = self._current.state
        searcher = state.searcher(space)
        return self._current.setting(state, searcher, recall, k, n_threads, 1.0, guarantee)

    def learn_stopping(
        self,
        queries: object,
        k: int = 10,
        *,
        space: str | None = None,
        seed: int = 0,
        n_threads: int = 0,
    ) -> None:
        """Learn from queries when walks end, so that hard queries take longer and others less.

        Searches with a `recall` use what was learned if validation queries are expected to take
        less time. Needs no true neighbours and no torch. Settings of the space and k are measured
        again. A changed graph or space drops it; additions and deletions do not. Not available
        under ip.

        Args:
            queries: a sample of the queries that will be asked, at least 500 beside those that
                validate; at most 8,000 are used [n_queries, dim].
            k: answers per query of the searches that it is for.
            space: name of the space to route in; by default the last of `spaces`.
            seed: seed of the choice among more queries.
            n_threads: threads to walk with; 0 for all cores.
        """
        asked = (queries, k, space, seed, n_threads)
        self._current.change(lambda state: changes.with_rule(state, *asked))

    def forget_stopping(self, k: int = 10, *, space: str | None = None) -> None:
        """Drop what `learn_stopping` learned, and the settings of this space and k.

        Args:
            k: answers per query of the searches that it was learned for.
            space: name of the space; by default the last of `spaces`.
        """
        self._current.change(lambda state: changes.without_rule(state, k, space))

    @property
    def build_record(self) -> Mapping[str, Any] | None:
        """What `l2route.build` reported of this index, as plain values; None if it has no report.

        `save` keeps it, and `BuildReport.load` reads it from what was saved.
        """
        report = self._current.state.report
        return None if report is None else deepcopy(report)

    def keep_build_record(self, record: Mapping[str, Any]) -> None:
        """Keep the report of a build with the index, in place of an earlier one.

        Args:
            record: plain values, such as JSON can say.
        """
        report = checked_report(deepcopy(dict(record)))
        self._current.change(lambda state: replace(state, report=report))

    def keep(self, setting: Setting) -> None:
        """Keep a setting measured elsewhere, for searches with its recall, k and space."""
        state = self._current.state
        state.searcher(setting.space)  # refuses a space that the index does not have
        self._current.add_setting(state, setting)
