"""The estimators for scikit-learn: its checks of estimators, its own estimators as twins."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.cluster import DBSCAN
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.manifold import TSNE, Isomap
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.neighbors import (
    KNeighborsClassifier,
    KNeighborsTransformer,
    NearestNeighbors,
    RadiusNeighborsClassifier,
)
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks
from threadpoolctl import threadpool_limits

from l2route.interop.sklearn import EXACT_SIZE, L2RouteNeighbors, L2RouteTransformer

METRICS = ["euclidean", "l2", "sqeuclidean", "cosine"]
Samples = NDArray[np.float64]


def draw(n: int, dim: int = 6, seed: int = 0) -> Samples:
    """Normal samples [n, dim]."""
    return np.random.default_rng(seed).normal(size=(n, dim))


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Keep scikit-learn's OpenMP to one thread: beside other work its threads wait in vain."""
    with threadpool_limits(1):
        yield


@pytest.fixture(scope="module")
def digits() -> tuple[Samples, NDArray[np.int64]]:
    """1,797 images of digits [1797, 64], and their digits; more than are searched exactly."""
    images, labels = load_digits(return_X_y=True)
    assert len(images) > EXACT_SIZE
    return images, labels


@parametrize_with_checks(
    [
        L2RouteNeighbors(),
        L2RouteNeighbors(metric="inner_product"),
        L2RouteTransformer(),
        L2RouteTransformer(mode="connectivity", metric="cosine"),
    ]
)
def test_scikit_learn_checks_it(estimator: Any, check: Any) -> None:
    """scikit-learn's checks of estimators, one by one."""
    check(estimator)


def test_no_check_is_skipped() -> None:
    """All checks pass where the one that needs SCIPY_ARRAY_API runs too."""
    code = """
from sklearn.utils.estimator_checks import check_estimator
from l2route.interop.sklearn import L2RouteNeighbors, L2RouteTransformer
for estimator in (L2RouteNeighbors(), L2RouteTransformer()):
    results = check_estimator(estimator, on_skip=None)
    print(len(results) > 40, {result["status"] for result in results})
"""
    environment = os.environ | {"SCIPY_ARRAY_API": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert run.stdout == 2 * "True {'passed'}\n"


@st.composite
def small_data(draw_: Any) -> tuple[Samples, Samples, int]:
    """Few samples with ties, queries, and how many neighbours to ask for."""
    n, dim = draw_(st.integers(2, 40)), draw_(st.integers(1, 5))
    rng = np.random.default_rng(draw_(st.integers(0, 1000)))
    if draw_(st.booleans()):
        samples = rng.integers(-2, 3, size=(n, dim)) + 0.25  # no zeros, which have no cosine
    else:
        samples = rng.normal(size=(n, dim)) + draw_(st.sampled_from([0, 1000]))
    return samples, samples[: n // 2] + rng.normal(size=(n // 2, dim)), draw_(st.integers(1, n - 1))


@settings(max_examples=60)
@given(data=small_data(), metric=st.sampled_from(METRICS))
def test_small_data_are_exact(data: tuple[Samples, Samples, int], metric: str) -> None:
    """Neighbours and graphs of few samples are those of scikit-learn, ties by distance."""
    samples, queries, k = data
    ours = L2RouteNeighbors(n_neighbors=k, metric=metric).fit(samples)
    twin = NearestNeighbors(n_neighbors=k, metric=metric, algorithm="brute").fit(samples)
    tolerance = {"rtol": 1e-3, "atol": 1e-3}
    for asked in (None, queries) if len(queries) else (None,):
        distances, ids = ours.kneighbors(asked)
        expected, _ = twin.kneighbors(asked)
        np.testing.assert_allclose(distances, expected, **tolerance)
        assert ids.shape == expected.shape
        rows = np.arange(len(ids))[:, None]
        assert all(len(set(row)) == k for row in ids.tolist())
        assert asked is not None or (ids != rows).all() or _has_ties(samples)
        graph, plain = (
            each.kneighbors_graph(asked, mode="distance").toarray() for each in (ours, twin)
        )
        np.testing.assert_allclose(np.sort(graph, axis=1), np.sort(plain, axis=1), **tolerance)
    for mode in ("distance", "connectivity"):
        if k + (mode == "distance") <= len(samples):
            graphs = [
                each(mode=mode, n_neighbors=k, metric=metric).fit_transform(samples)
                for each in (L2RouteTransformer, KNeighborsTransformer)
            ]
            assert (graphs[0].indptr == graphs[1].indptr).all()
            np.testing.assert_allclose(graphs[0].data, graphs[1].data, **tolerance)


def _has_ties(samples: Samples) -> bool:
    return len(np.unique(samples, axis=0)) < len(samples)


@pytest.mark.parametrize("metric", METRICS)
def test_all_within_a_radius(metric: str) -> None:
    """Up to the exact size all neighbours within a radius are found, nearest first."""
    samples, queries = draw(300), draw(20, seed=1)
    ours = L2RouteNeighbors(metric=metric).fit(samples)
    twin = NearestNeighbors(metric=metric, algorithm="brute").fit(samples)
    for asked in (None, queries):
        for radius in (0.0, 0.3, 1.3, 1e9):
            distances, ids = ours.radius_neighbors(asked, radius)
            expected, names = twin.radius_neighbors(asked, radius, sort_results=True)
            for got, wanted, found, known in zip(distances, expected, ids, names, strict=True):
                np.testing.assert_allclose(got, wanted, atol=1e-5)
                assert set(found) == set(known)
            graph = ours.radius_neighbors_graph(asked, radius, mode="distance")
            plain = twin.radius_neighbors_graph(asked, radius, mode="distance")
            np.testing.assert_allclose(graph.toarray(), plain.toarray(), atol=1e-5)
    assert len(ours.radius_neighbors(queries[:3], 1.0, return_distance=False)) == 3
    with pytest.raises(ValueError, match="expected a radius of at least 0, got -1"):
        ours.radius_neighbors(queries, -1.0)


def test_inner_products() -> None:
    """The largest inner products come first; they are not put into a graph as distances."""
    samples, queries = draw(200), draw(10, seed=1)
    ours = L2RouteNeighbors(metric="inner_product", n_neighbors=7).fit(samples)
    distances, ids = ours.kneighbors(queries)
    np.testing.assert_array_equal(ids, np.argsort(-queries @ samples.T, axis=1)[:, :7])
    np.testing.assert_allclose(distances, np.sort(-queries @ samples.T, axis=1)[:, :7], rtol=1e-4)
    assert ours.kneighbors_graph(queries).sum() == 70
    found = ours.radius_neighbors(queries, -2.0, return_distance=False)
    expected = [set(np.flatnonzero(row >= 2)) for row in queries @ samples.T]
    assert [set(each) for each in found] == expected
    with pytest.raises(ValueError, match="expected mode connectivity for inner products"):
        ours.kneighbors_graph(queries, mode="distance")
    with pytest.raises(ValueError, match="expected mode connectivity for inner products"):
        L2RouteTransformer(metric="inner_product").fit(samples)
    assert L2RouteTransformer(mode="connectivity", metric="inner_product").fit(samples)


def test_samples_far_from_the_origin() -> None:
    """Euclidean distances are those of centred samples: an offset costs no digits."""
    samples = draw(500)
    near, _ = NearestNeighbors().fit(samples).kneighbors()
    far, _ = L2RouteNeighbors().fit(samples + 1e6).kneighbors()
    np.testing.assert_allclose(far, near, rtol=1e-4)


def test_samples_are_their_own_neighbours(digits: tuple[Samples, NDArray[np.int64]]) -> None:
    """The diagonal of the graph of the samples of `fit` is explicit, and 0."""
    images, _ = digits
    for metric in ("euclidean", "cosine"):
        graph = L2RouteTransformer(n_neighbors=5, metric=metric).fit_transform(images)
        assert graph.nnz == 6 * len(images)
        first = graph.indices[graph.indptr[:-1]]
        assert (first == np.arange(len(images))).mean() > 0.99  # all but equal images
        assert graph.data[graph.indptr[:-1]].max() < 1e-6
        assert (np.diff(graph.data.reshape(-1, 6), axis=1) >= 0).all()


def recall(found: Any, truth: Any) -> float:
    """Share of the true neighbours found, in two arrays of ids."""
    pairs = zip(found.tolist(), truth.tolist(), strict=True)
    return float(np.mean([len(set(a) & set(b)) / len(b) for a, b in pairs]))


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_recall_of_more_samples(digits: tuple[Samples, NDArray[np.int64]], metric: str) -> None:
    """The default beam finds nearly all neighbours of real samples."""
    images, _ = digits
    twin = NearestNeighbors(metric=metric, algorithm="brute").fit(images)
    for k in (1, 15, 90):
        truth = twin.kneighbors(n_neighbors=k, return_distance=False)
        found = L2RouteNeighbors(metric=metric).fit(images).kneighbors(n_neighbors=k)[1]
        assert recall(found, truth) > 0.995  # measured: 0.999 and more


def test_a_wider_beam_finds_more() -> None:
    """`ef` is the knob of recall."""
    hard = draw(5000, dim=40)
    truth = NearestNeighbors(n_neighbors=10).fit(hard).kneighbors(return_distance=False)
    narrow, wide = (
        recall(L2RouteNeighbors(n_neighbors=10, ef=ef).fit(hard).kneighbors()[1], truth)
        for ef in (10, 1000)
    )
    assert narrow < wide - 0.02  # measured: 0.972 and 1.0
    assert wide > 0.99


def test_a_classifier_of_precomputed_neighbours(
    digits: tuple[Samples, NDArray[np.int64]],
) -> None:
    """Classes by our neighbours are those by scikit-learn's, in a pipeline and a grid search."""
    images, labels = digits
    train, test, train_labels, test_labels = train_test_split(images, labels, random_state=0)

    def pipeline(transformer: Any) -> Any:
        classifier = KNeighborsClassifier(n_neighbors=5, metric="precomputed")
        return make_pipeline(transformer, classifier).fit(train, train_labels)

    ours = pipeline(L2RouteTransformer(n_neighbors=5))
    exact = pipeline(KNeighborsTransformer(n_neighbors=5))
    assert (ours.predict(test) == exact.predict(test)).mean() > 0.995
    assert ours.score(test, test_labels) > 0.97
    search = GridSearchCV(
        ours, {"l2routetransformer__metric": ["euclidean", "cosine"]}, cv=2, error_score="raise"
    )
    assert search.fit(train, train_labels).best_score_ > 0.97


def test_t_sne_of_precomputed_neighbours(digits: tuple[Samples, NDArray[np.int64]]) -> None:
    """t-SNE of our graph is as good as that of scikit-learn's own."""
    images = digits[0][:400]

    def divergence(transformer: Any) -> float:
        tsne = TSNE(
            metric="precomputed", init="random", perplexity=10, max_iter=300, random_state=0
        )
        embedded = make_pipeline(transformer, tsne).fit_transform(images)
        assert embedded.shape == (400, 2)
        return float(tsne.kl_divergence_)

    ours = divergence(L2RouteTransformer(n_neighbors=31, metric="sqeuclidean"))
    exact = divergence(KNeighborsTransformer(n_neighbors=31, metric="sqeuclidean"))
    assert ours == pytest.approx(exact, rel=0.05)


def test_other_estimators_of_precomputed_neighbours() -> None:
    """Clusters, manifolds and classes by radius are those of scikit-learn's graphs."""
    blobs = np.concatenate([draw(60) * 0.2 + 5 * center for center in range(3)])
    labels = np.repeat([0, 1, 2], 60)
    graph = L2RouteNeighbors(radius=1.5).fit(blobs).radius_neighbors_graph(blobs, mode="distance")
    clusters = DBSCAN(eps=1.5, metric="precomputed").fit_predict(graph)
    assert (clusters == DBSCAN(eps=1.5).fit_predict(blobs)).all()
    ours, exact = (
        make_pipeline(
            transformer(n_neighbors=30), Isomap(n_neighbors=30, metric="precomputed")
        ).fit_transform(draw(100))
        for transformer in (L2RouteTransformer, KNeighborsTransformer)
    )
    np.testing.assert_allclose(np.abs(ours), np.abs(exact), atol=1e-3)
    by_radius = RadiusNeighborsClassifier(radius=1.5, metric="precomputed").fit(graph, labels)
    assert (by_radius.predict(graph) == labels).all()


def test_estimators_are_cloned_and_pickled() -> None:
    """A clone has the parameters, a pickle the index too."""
    for estimator in (L2RouteNeighbors(ef=77, n_jobs=1), L2RouteTransformer(ef=77, n_jobs=1)):
        assert clone(estimator).get_params() == estimator.get_params()
        fitted = estimator.fit(draw(100))
        again = pickle.loads(pickle.dumps(fitted))
        method = "transform" if hasattr(fitted, "transform") else "kneighbors_graph"
        ours, theirs = (
            getattr(each, method)(draw(5, seed=1)).toarray() for each in (fitted, again)
        )
        np.testing.assert_array_equal(ours, theirs)


def test_names_of_features() -> None:
    """Names of columns are checked; those of the output are numbered; pandas cannot be sparse."""
    frame = pd.DataFrame(draw(30), columns=list("abcdef"))
    transformer = L2RouteTransformer(n_neighbors=3).fit(frame)
    assert list(transformer.feature_names_in_) == list("abcdef")
    names = transformer.get_feature_names_out()
    assert list(names[:2]) == ["l2routetransformer0", "l2routetransformer1"]
    assert len(names) == 30
    with pytest.raises(ValueError, match="feature names"):
        transformer.transform(frame.rename(columns={"a": "z"}))
    with pytest.raises(ValueError, match="disable Pandas output"):
        transformer.set_output(transform="pandas").transform(frame)
    assert L2RouteNeighbors().fit(frame).kneighbors(frame)[1].shape == (30, 5)


def test_threads_do_not_change_anything() -> None:
    """Any number of jobs finds the same."""
    expected = L2RouteNeighbors().fit(draw(1500)).kneighbors()
    for n_jobs in (1, 2, -1, -2, -100):
        found = L2RouteNeighbors(n_jobs=n_jobs).fit(draw(1500)).kneighbors()
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"metric": "manhattan"}, "expected a metric of euclidean, .*, got 'manhattan'"),
        ({"n_neighbors": 0}, "expected n_neighbors of at least 1, got 0"),
        ({"n_neighbors": 2.5}, "expected n_neighbors of at least 1, got 2.5"),
        ({"ef": 0}, "expected ef of at least 1, got 0"),
        ({"n_jobs": 0}, "expected n_jobs other than 0, got 0"),
    ],
)
def test_wrong_parameters_are_refused(parameters: dict[str, Any], message: str) -> None:
    """By `fit`, as scikit-learn wants it."""
    for kind in (L2RouteNeighbors, L2RouteTransformer):
        with pytest.raises(ValueError, match=message):
            kind(**parameters).fit(draw(10))


def test_wrong_questions_are_refused() -> None:
    """More neighbours than samples, modes that there are not, and questions before `fit`."""
    with pytest.raises(NotFittedError):
        L2RouteNeighbors().kneighbors(draw(3))
    fitted = L2RouteNeighbors().fit(draw(10))
    with pytest.raises(ValueError, match="expected n_neighbors of at most 10, got 11"):
        fitted.kneighbors(draw(2), 11)
    with pytest.raises(ValueError, match="expected n_neighbors of at most 9, got 10"):
        fitted.kneighbors(n_neighbors=10)
    with pytest.raises(ValueError, match="expected mode connectivity or distance, got 'dense'"):
        fitted.kneighbors_graph(mode="dense")
    with pytest.raises(ValueError, match="expected mode connectivity or distance, got 'dense'"):
        L2RouteTransformer(mode="dense").fit(draw(10))  # type: ignore[arg-type]


def test_without_scikit_learn_the_error_names_the_extra() -> None:
    """The import fails with the command that installs what is missing."""
    code = "import sys; sys.modules['sklearn'] = None; import l2route.interop.sklearn"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    message = 'ImportError: the estimators for scikit-learn need: pip install "l2route[sklearn]"'
    assert message in run.stderr
