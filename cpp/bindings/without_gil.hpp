// Long calls release the GIL, react to Ctrl-C, and end before the interpreter does.
//
// A thread that takes the GIL after the interpreter has ended is terminated in the middle of C++
// code, which aborts the process. So calls are counted, and a hook at exit stops the calls of
// daemon threads, which Python does not join, and waits until they have returned.
#pragma once

#include <nanobind/nanobind.h>
#include <pthread.h>
#include <pythread.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <thread>

#include "threads/pulse.hpp"
#include "threads/readers.hpp"

namespace l2route {

namespace nb = nanobind;

class Interpreter {
 public:
  static Interpreter& own() {
    static Interpreter interpreter;
    return interpreter;
  }

  // To be called once, by the module.
  void attach() {
    const nb::object main_thread = nb::module_::import_("threading").attr("main_thread")();
    main_thread_ = nb::cast<unsigned long>(main_thread.attr("ident"));
    pthread_atfork(nullptr, nullptr, [] { own().start_anew(); });
    nb::module_::import_("atexit").attr("register")(nb::cpp_function([] { own().end_calls(); }));
  }

  // Whether this thread's work is to end: a signal handler raised an exception, or the hook at exit
  // is waiting for this thread.
  bool is_unwanted() const {
    if (is_over_for_this_thread()) return true;
    if (PyThread_get_thread_ident() != main_thread_) return false;  // only it runs signal handlers
    const nb::gil_scoped_acquire acquire;
    return PyErr_CheckSignals() != 0;
  }

  bool is_over_for_this_thread() const {
    return is_ending_.load() && std::this_thread::get_id() != ending_thread_;
  }

  // Counts a call during its lifetime; constructed and destroyed with the GIL held.
  class Call {
   public:
    Call() { ++own().n_calls_; }
    ~Call() { --own().n_calls_; }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
  };

 private:
  Interpreter() = default;

  void end_calls() {
    ending_thread_ = std::this_thread::get_id();
    is_ending_ = true;
    const nb::gil_scoped_release release;
    while (n_calls_ > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  // A forked process has one thread, and none of the calls of its parent's other threads.
  void start_anew() {
    n_calls_ = 0;
    Readers::on_fork();
    main_thread_ = PyThread_get_thread_ident();
  }

  std::atomic<std::size_t> n_calls_{0};
  std::atomic<bool> is_ending_{false};
  std::thread::id ending_thread_;
  unsigned long main_thread_ = 0;
};

// Calls work(pulse) without the GIL. If the work is stopped, the exception is that of the signal
// handler, or SystemExit in a daemon thread at exit, which ends the thread silently.
template <class Work>
void without_gil(const Work& work) {
  bool is_stopped = Interpreter::own().is_over_for_this_thread();
  if (!is_stopped) {
    const Interpreter::Call call;
    const nb::gil_scoped_release release;
    Pulse pulse([] { return Interpreter::own().is_unwanted(); });
    try {
      work(pulse);
    } catch (const Stopped&) {
      is_stopped = true;
    }
  }
  if (!is_stopped) return;
  if (!PyErr_Occurred()) PyErr_SetNone(PyExc_SystemExit);
  throw nb::python_error();
}

}  // namespace l2route
