// Parallel loops: indices are handed out in short runs, and the caller's thread works too.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "threads/pulse.hpp"

namespace l2route {

// Cached: asking the system takes as long as a short search.
inline std::size_t n_cores() {
  static const std::size_t n = std::max(1u, std::thread::hardware_concurrency());
  return n;
}

// The caller's thread and its helpers.
template <class Body>
class Crew {
 public:
  Crew(std::size_t n, std::size_t n_threads, Pulse& pulse, const Body& body)
      : n_(n),
        n_threads_(n_threads == 0 ? n_cores() : n_threads),
        run_(std::clamp<std::size_t>(n / n_threads_ / 4, 1, 8)),  // short runs if there are few
        pulse_(pulse),
        body_(body) {}

  void run() {
    if (n_threads_ > 1) pulse_.set_alarm(kAlone, [this] { call_helpers(); });
    work();
    pulse_.clear_alarm();
    wait_for_helpers();
    if (error_) std::rethrow_exception(error_);
  }

 private:
  // Helpers are started after this long: starting a thread and its buffers takes about as long.
  static constexpr std::chrono::microseconds kAlone{100};

  void work() {
    std::size_t i = 0, end = 0;
    try {
      body_([&]() -> std::optional<std::size_t> {
        if (i == end) {
          i = next_.fetch_add(run_);
          end = std::min(n_, i + run_);
          if (i >= n_) {
            i = end;
            return std::nullopt;
          }
          pulse_.beat();
        }
        return i++;
      });
    } catch (...) {
      keep_error();
    }
  }

  void keep_error() {
    next_.store(n_);  // no thread takes another run
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
  }

  void call_helpers() {
    const std::size_t left = n_ - std::min(n_, next_.load());
    const std::size_t n_helpers = std::min(n_threads_ - 1, (left + run_ - 1) / run_);
    try {
      helpers_.reserve(n_helpers);
      while (helpers_.size() < n_helpers) {
        helpers_.emplace_back([this] { help(); });
        const std::lock_guard lock(mutex_);
        ++n_called_;
      }
    } catch (const std::exception&) {
      // The system has no more threads: continue with those already started.
    }
  }

  void help() {
    work();
    const std::lock_guard lock(mutex_);
    ++n_back_;
    is_back_.notify_one();
  }

  // The pulse beats meanwhile, so that helpers can still be stopped.
  void wait_for_helpers() {
    std::unique_lock lock(mutex_);
    while (!is_back_.wait_for(lock, Pulse::kInterval, [this] { return n_back_ == n_called_; })) {
      lock.unlock();
      try {
        pulse_.beat();
      } catch (...) {
        keep_error();
      }
      lock.lock();
    }
    lock.unlock();
    for (std::thread& helper : helpers_) helper.join();
  }

  const std::size_t n_;
  const std::size_t n_threads_;
  const std::size_t run_;
  Pulse& pulse_;
  const Body& body_;
  std::atomic<std::size_t> next_{0};
  std::vector<std::thread> helpers_;
  std::mutex mutex_;
  std::condition_variable is_back_;
  std::size_t n_called_ = 0;
  std::size_t n_back_ = 0;
  std::exception_ptr error_;
};

// Calls body(take) once on each of at most n_threads threads (0: as many as the machine has), where
// take() hands out every i < n once, then nothing. Throws the first exception that a body threw, or
// Stopped.
template <class Body>
void parallel_take(std::size_t n, std::size_t n_threads, Pulse& pulse, const Body& body) {
  Crew(n, n_threads, pulse, body).run();
}

// Calls body(i) for every i < n, likewise.
template <class Body>
void parallel_for(std::size_t n, std::size_t n_threads, Pulse& pulse, const Body& body) {
  parallel_take(n, n_threads, pulse, [&](const auto& take) {
    while (const std::optional<std::size_t> i = take()) body(*i);
  });
}

}  // namespace l2route
