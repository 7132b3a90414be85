// One parallel-for: indices handed out in small runs, the caller's thread works too.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace l2route {

// Calls body(i) for every i < n on at most n_threads threads (0: as many as the machine has),
// and throws the first exception that a body threw.
template <class Body>
void parallel_for(std::size_t n, std::size_t n_threads, const Body& body) {
  if (n_threads == 0) n_threads = std::max(1u, std::thread::hardware_concurrency());
  const std::size_t run = std::clamp<std::size_t>(n / n_threads / 4, 1, 8);  // few for few
  n_threads = std::min(n_threads, (n + run - 1) / run);

  std::atomic<std::size_t> next{0};
  std::exception_ptr error;
  std::mutex error_mutex;
  const auto work = [&] {
    try {
      for (std::size_t begin = next.fetch_add(run); begin < n; begin = next.fetch_add(run)) {
        for (std::size_t i = begin; i < std::min(n, begin + run); ++i) body(i);
      }
    } catch (...) {
      next.store(n);  // nobody takes another run
      const std::lock_guard lock(error_mutex);
      if (!error) error = std::current_exception();
    }
  };

  std::vector<std::thread> threads;
  try {
    for (std::size_t t = 1; t < n_threads; ++t) threads.emplace_back(work);
  } catch (const std::exception&) {
    // The system has no more threads to give; those there are do the work.
  }
  work();
  for (std::thread& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace l2route
