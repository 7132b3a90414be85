"""Recall of answers, by the true distances of what they name."""

from l2route.data.dataset import Dataset
from l2route.data.metrics import recall_at
from l2route.data.truth import exact_distances, exact_neighbors
from l2route.evaluation.compare.peers import Ids


class Judge:
    """Knows the true neighbours of a dataset's test queries.

    Args:
        data: base vectors and queries.
        k: answers per query.
    """

    def __init__(self, data: Dataset, k: int) -> None:
        self.data, self.k = data, k
        self.truth = exact_neighbors(data.base, data.query, k, data.metric)

    def recall(self, ids: Ids) -> float:
        """Recall@k of answers [n_queries, k]; whoever is as near as the k-th nearest counts."""
        data = self.data
        distances = exact_distances(data.base, data.query, ids, data.metric)
        return recall_at(distances, self.truth.distances, self.k)
