// Python's classes for streams, and searches within a radius.
#include "search/stream.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <unordered_set>
#include <utility>
#include <vector>

#include "bindings/filter.hpp"
#include "bindings/module.hpp"
#include "bindings/searcher.hpp"
#include "bindings/without_gil.hpp"
#include "live/visit.hpp"
#include "search/queries.hpp"
#include "threads/parallel.hpp"

using namespace nanobind::literals;

namespace l2route {
namespace {

using Labels = OptionalArray<std::int64_t>;

// A filter that everything passes.
Filter pass_all(const Searcher& searcher) {
  Filter filter;
  filter.n_bits = filter.count = searcher.graph.bottom.n;
  return filter;
}

using Seen = std::unordered_set<std::int64_t>;

// Ids and distances of vertices; those whose label is −1 are left out, and so are ids that were
// seen before, which are in two slots of an index that changes.
struct Answered {
  std::vector<std::int64_t> ids;
  std::vector<float> distances;

  Answered(const Searcher& searcher, const Labels& labels, const std::vector<Key>& keys,
           Seen* seen) {
    Answers by_label{};
    if (labels) by_label.labels = labels->data();
    for (const Key key : keys) {
      const std::int64_t id = by_label.label_of(vertex_of(key));
      if (id == -1 || (seen != nullptr && !seen->insert(id).second)) continue;
      ids.push_back(id);
      distances.push_back(searcher.distance_of(score_of(key)));
    }
  }
};

class PyStream {
 public:
  PyStream(std::shared_ptr<const PySearcher> from, Labels labels, const Array<float>& query,
           std::shared_ptr<const PyFilter> filter, std::size_t ef, std::size_t rerank)
      : from_(std::move(from)), labels_(std::move(labels)), filter_(std::move(filter)) {
    const Searcher& searcher = from_->searcher();
    require(query.shape(0) == searcher.dim, "a query [" + std::to_string(searcher.dim) +
                                                "], got [" + std::to_string(query.shape(0)) + "]");
    check_queries(query.data(), 1, searcher.dim, searcher.is_cosine);
    stream_.emplace(searcher, query.data(),
                    filter_ == nullptr ? pass_all(searcher) : filter_->view(), ef, rerank,
                    scratch_);
  }
  PyStream(const PyStream&) = delete;  // the stream refers to its members
  PyStream& operator=(const PyStream&) = delete;

  std::tuple<Output<std::int64_t>, Output<float>> next(std::size_t count) {
    std::vector<Key> page;
    std::optional<Answered> answered;
    without_gil([&](Pulse& pulse) {
      const std::lock_guard lock(mutex_);
      const Visit visit(from_->store());
      do {  // a page of deleted vertices is not the end
        stream_->next(count, pulse, page);
        answered.emplace(from_->searcher(), labels_, page, visit.is_living() ? &seen_ : nullptr);
      } while (!page.empty() && answered->ids.empty());
    });
    return {copied(answered->ids), copied(answered->distances)};
  }

 private:
  const std::shared_ptr<const PySearcher> from_;
  const Labels labels_;
  const std::shared_ptr<const PyFilter> filter_;
  StreamScratch scratch_;
  std::optional<Stream> stream_;
  Seen seen_;
  std::mutex mutex_;
};

// offsets [n + 1], ids, distances
using Within = std::tuple<Output<std::int64_t>, Output<std::int64_t>, Output<float>>;

Within search_radius(const PySearcher& from, const Labels& labels, const Matrix<float>& queries,
                     const Array<float>& radii, const PyFilters& given, std::size_t ef,
                     std::size_t n_threads) {
  const Searcher& searcher = from.searcher();
  const std::size_t n = queries.shape(0);
  require(queries.shape(1) == searcher.dim && radii.shape(0) == n, "a radius per query");
  const std::vector<const Filter*> filters = views_of(given, n, searcher.graph.bottom.n);
  const Filter all = pass_all(searcher);
  std::vector<std::optional<Answered>> found(n);
  without_gil([&](Pulse& pulse) {
    check_queries(queries.data(), n, searcher.dim, searcher.is_cosine);
    const Visit visit(from.store());
    parallel_for(n, n_threads, pulse, [&](std::size_t i) {
      thread_local StreamScratch scratch;
      std::vector<Key> keys;
      const Filter& filter = filters.empty() ? all : *filters[filters.size() == 1 ? 0 : i];
      find_within(searcher, queries.data() + i * searcher.dim, filter, radii.data()[i], ef, scratch,
                  pulse, keys);
      Seen seen;
      found[i].emplace(searcher, labels, keys, visit.is_living() ? &seen : nullptr);
    });
  });
  const auto offsets = offsets_of(found, [](const auto& each) { return each->ids.size(); });
  return {copied(offsets),
          joined<std::int64_t>(found, offsets.back(),
                               [](const auto& each) -> const auto& { return each->ids; }),
          joined<float>(found, offsets.back(),
                        [](const auto& each) -> const auto& { return each->distances; })};
}

}  // namespace

void bind_stream(nb::module_& m) {
  nb::class_<PyStream>(m, "Stream", "A search that goes on where it stopped.")
      .def(nb::init<std::shared_ptr<const PySearcher>, Labels, const Array<float>&,
                    std::shared_ptr<const PyFilter>, std::size_t, std::size_t>(),
           "searcher"_a, "labels"_a.none(), "query"_a, "filter"_a.none(), "ef"_a, "rerank"_a)
      .def("next", &PyStream::next, "count"_a,
           "The next ids and distances, at most `count` and ef; none at the end.");
  m.def("search_radius", &search_radius, "searcher"_a, "labels"_a.none(), "queries"_a, "radii"_a,
        "filters"_a, "ef"_a, "n_threads"_a,
        "All within the radius of each query [n]: offsets [n + 1], ids, distances.");
}

}  // namespace l2route
