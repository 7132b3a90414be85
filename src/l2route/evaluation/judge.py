"""Recall of answers given by id, judged by their true distances."""

import numpy as np
from numpy.typing import NDArray

from l2route.data.dataset import Dataset
from l2route.data.metrics import recall_at
from l2route.data.truth import exact_distances, exact_neighbors


class Judge:
    """Holds the true neighbours of a dataset's test queries.

    Args:
        data: base vectors and queries.
        k: answers per query.
    """

    def __init__(self, data: Dataset, k: int) -> None:
        self.data, self.k = data, k
        self.truth = exact_neighbors(data.base, data.query, k, data.metric)

    def recall(self, ids: NDArray[np.int64]) -> float:
        """Recall@k of answers [n_queries, k]; ties with the k-th nearest count."""
        data = self.data
        distances = exact_distances(data.base, data.query, ids, data.metric)
        return recall_at(distances, self.truth.distances, self.k)
