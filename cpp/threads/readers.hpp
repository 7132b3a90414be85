// Which searches are running: what they may still read is reused only when they have ended.
//
// Time is divided into epochs. A reader belongs to the epoch in which it entered. An epoch begins
// only when no reader of the epoch before the last one is left; so once two epochs have begun since
// something was hidden from new readers, no reader can hold it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace l2route {

class Readers {
 public:
  using Epoch = std::uint64_t;

  Readers() : process_(process().load()) {}
  Readers(const Readers&) = delete;
  Readers& operator=(const Readers&) = delete;

  // Counts a reader during its lifetime.
  class Guard {
   public:
    explicit Guard(Readers& readers) : readers_(readers), epoch_(readers.enter()) {}
    ~Guard() { readers_.active_[epoch_ & 1].fetch_sub(1); }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    Readers& readers_;
    const Epoch epoch_;
  };

  // For the one writer: the epoch of what is hidden now.
  Epoch now() const { return epoch_.load(); }

  // For the one writer: whether every reader that entered before `then` ended has left.
  bool has_passed(Epoch then) {
    forget_parent();
    while (epoch_.load() < then + 2) {
      const Epoch epoch = epoch_.load();
      if (active_[(epoch + 1) & 1].load() != 0) return false;  // readers of the epoch before
      epoch_.store(epoch + 1);
    }
    return true;
  }

  // A forked process has none of its parent's other threads: to be called in it.
  static void on_fork() { process().fetch_add(1); }

 private:
  static std::atomic<std::uint64_t>& process() {
    static std::atomic<std::uint64_t> number{0};
    return number;
  }

  // Readers of threads that a fork did not copy would never leave.
  void forget_parent() {
    if (process_.load() == process().load()) return;
    const std::lock_guard lock(mutex_);
    if (process_.load() == process().load()) return;
    active_[0] = active_[1] = 0;
    process_ = process().load();
  }

  Epoch enter() {
    forget_parent();
    while (true) {
      const Epoch epoch = epoch_.load();
      active_[epoch & 1].fetch_add(1);
      if (epoch_.load() == epoch) return epoch;
      active_[epoch & 1].fetch_sub(1);  // another epoch began meanwhile
    }
  }

  std::atomic<Epoch> epoch_{2};
  std::atomic<std::size_t> active_[2]{};
  std::atomic<std::uint64_t> process_;
  std::mutex mutex_;
};

}  // namespace l2route
