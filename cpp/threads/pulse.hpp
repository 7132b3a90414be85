// Periodic checks during long calls: whether to stop, and whether to start more threads.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <utility>

namespace l2route {

// Thrown to end work before it is done.
struct Stopped {};

class Pulse {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kInterval{50};

  // `is_unwanted` is called every 50 ms, only by the thread that made the pulse; true stops the
  // work.
  explicit Pulse(std::function<bool()> is_unwanted = {})
      : is_unwanted_(std::move(is_unwanted)), checked_(Clock::now()) {}
  Pulse(const Pulse&) = delete;
  Pulse& operator=(const Pulse&) = delete;

  // Every working thread has to call this often; throws Stopped if the work is to end.
  void beat() {
    if (is_stopped_.load(std::memory_order_relaxed)) throw Stopped{};
    if (std::this_thread::get_id() != owner_) return;
    const Clock::time_point now = Clock::now();
    if (alarm_ && now >= alarm_at_) std::exchange(alarm_, nullptr)();
    if (now - checked_ < kInterval) return;
    checked_ = now;
    if (!is_unwanted_ || !is_unwanted_()) return;
    is_stopped_.store(true, std::memory_order_relaxed);
    throw Stopped{};
  }

  // Calls `alarm` once, at the first beat of the pulse's own thread after the delay.
  void set_alarm(Clock::duration delay, std::function<void()> alarm) {
    alarm_at_ = Clock::now() + delay;
    alarm_ = std::move(alarm);
  }
  void clear_alarm() { alarm_ = nullptr; }

 private:
  const std::function<bool()> is_unwanted_;
  const std::thread::id owner_ = std::this_thread::get_id();
  Clock::time_point checked_;
  std::function<void()> alarm_;
  Clock::time_point alarm_at_;
  std::atomic<bool> is_stopped_{false};
};

}  // namespace l2route
