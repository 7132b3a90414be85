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
"""# From vectors and a query log to a served index.

Build an index for a recall, look at how it searches, filter, change, save. The vectors are words of
glove.6B.50d (`pip install ".[demo,train,plots]"`); a query is a word that the index does not have.
"""

# %%
import tempfile
from pathlib import Path

import l2route
from l2route.data.metrics import recall_at
from l2route.data.public import demo_words
from l2route.data.truth import exact_distances, exact_neighbors

words = demo_words(n_base=10_000, n_learn=4_000, n_query=1_000)
vectors, query_log, queries = words.dataset.base, words.dataset.training, words.dataset.query
print(vectors.shape, query_log.shape, queries.shape)

# %% [markdown]
"""
## Build for a recall

The graph is built, routing is learned from the log, vectors are compressed, and the setting that
reaches a recall@10 of 0.95 is measured. A step that does not pay is not kept; the report says so.
"""

# %%
index, report = l2route.build(vectors, query_log, k=10, recall=0.95, minutes=0.5)
index.name(l2route.Labels.of(words.base_words))  # shown in place of ids, saved with the index
print(report)

# %% [markdown]
"""
## Check the recall

On queries that neither learned nor measured anything. Distances are computed anew from the vectors
as they were given: the index has stored them as half floats, and its distances are rounded with
them.
"""

# %%
result = index.search(queries, k=10, recall=0.95)
truth = exact_neighbors(vectors, queries, 10, "l2")
distances = exact_distances(vectors, queries, result.ids, "l2")
print(f"recall@10 {recall_at(distances, truth.distances, 10):.3f}")
print(f"{result.n_routing.mean():,.0f} of {len(index):,} vectors scored per query")
for i in range(3):
    print(f"{words.query_words[i]}: {', '.join(index.names.names(result.ids[i, :5]))}")

# %% [markdown]
"""
## Look at a search

What a walk visits, hop by hop, what it costs, and what it finds. In a notebook an explanation is a
picture with a slider; its method `plot` draws a figure.
"""

# %%
explanation = index.explain(queries[0], k=10, ef=32)
print(explanation)
explanation.named(index.names.names)

# %% [markdown]
"""
## Filters

A filter is a set of ids: here the words of at most five letters.
"""

# %%
short = index.filter([i for i, word in enumerate(words.base_words) if len(word) <= 5])
found = index.search(queries[:3], k=5, recall=0.95, where=short)
for i in range(3):
    print(f"{words.query_words[i]}: {', '.join(index.names.names(found.ids[i]))}")

# %% [markdown]
"""
## Changes

Vectors come and go while others search. A save writes what changed.
"""

# %%
with tempfile.TemporaryDirectory() as directory:
    path = Path(directory) / "words.l2r"
    index.save(path)
    new = index.add(queries[:10])
    index.delete([0, 1, 2])
    index.save()
    served = l2route.load(path)
print(
    len(served),
    "vectors; the new ones find themselves:",
    served.search(queries[0], k=1).ids[0, 0] == new[0],
)
