# ---
# jupyter:
#   jupytext:
#     cell_markers: '"""'
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
"""# A model of your own, measured at exact budgets.

Measure the paper's baseline, learn with the default model and with one of your own, and compare
them at equal numbers of distance computations. The vectors are words of glove.6B.50d
(`pip install ".[demo,train,plots]"`).
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import Tensor, nn

from l2route import RoutingIndex
from l2route.data.public import demo_words
from l2route.data.truth import exact_neighbors
from l2route.evaluation.measure import measure
from l2route.evaluation.tables import as_markdown
from l2route.models.features import propagate
from l2route.models.protocol import unit_scale

BUDGETS = (64, 128, 256)
data = demo_words(n_base=5_000, n_learn=20_000, n_query=1_000).dataset
truth = exact_neighbors(data.base, data.query, 10, data.metric)

# %% [markdown]
"""
## The paper's graph

NSW of degree 16, entered at vertex 0. Budgets are exact: routing, projection and rerank count.
"""

# %%
index = RoutingIndex.build(data.base, graph="nsw", degree=16, entry=0, refine=False)
plain = [measure(index, data.query, truth, budget=budget) for budget in BUDGETS]
print(as_markdown(plain))

# %% [markdown]
"""
## The default model

Linear in features that are propagated along the graph. What it learned is kept only if it is better
on held-out queries, with a confidence of 99%.
"""

# %%
report = index.learn(data.training, budget=128, rerank=8, steps=1000)
print(report)
learned = [measure(index, data.query, truth, budget=budget) for budget in BUDGETS]

# %% [markdown]
"""
## A model of your own

Two methods: vectors and biases of vertices, and a map of queries. This one moves every vector
towards the mean of its neighbours, by a learned share per dimension.
"""


# %%
class Surroundings(nn.Module):
    """Score α(⟨x + w∘(Ax − x), q⟩ − |x|²/2), where w is learned."""

    def __init__(self, index: RoutingIndex, sharpness: float = 40.0) -> None:
        super().__init__()
        vectors = index.base.vectors() * unit_scale(index.base.vectors())
        self.sharpness = sharpness
        self.vectors = torch.from_numpy(vectors)
        self.steps = torch.from_numpy(propagate(index.graph, vectors) - vectors)
        self.halves = torch.from_numpy((vectors**2).sum(axis=1) / 2)
        self.shares = nn.Parameter(torch.zeros(vectors.shape[1]))

    def vertices(self) -> tuple[Tensor, Tensor]:
        """Vectors [n, dim] and biases [n]."""
        moved = self.vectors + self.shares * self.steps
        return self.sharpness * moved, -self.sharpness * self.halves

    def queries(self, queries: Tensor) -> Tensor:
        """Queries unchanged [batch, dim]."""
        return queries


mine = RoutingIndex(index.base, index.graph)
print(mine.learn(data.training, budget=128, rerank=8, model=Surroundings(mine), steps=100))
own = [measure(mine, data.query, truth, budget=budget) for budget in BUDGETS]

# %% [markdown]
"""
## Compare

Recall@1 on test queries at equal budgets, on the same graph and by the same search. Where a space
was not kept, its curve is that of the original vectors.
"""

# %%
figure, axes = plt.subplots(figsize=(6, 3.5))
for name, rows, mark in (
    ("original", plain, "o--"),
    ("filter", learned, "s-"),
    ("mine", own, "^:"),
):
    axes.plot(BUDGETS, [row.recall_at_1 for row in rows], mark, label=name)
axes.set_xscale("log", base=2)
axes.set_xticks(BUDGETS, [str(budget) for budget in BUDGETS])
axes.set_xlabel("distance computations per query")
axes.set_ylabel("recall@1")
axes.legend()
gains = np.array([[row.recall_at_1 for row in rows] for rows in (plain, learned, own)])
print(gains.round(3))
