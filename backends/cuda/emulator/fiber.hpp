#pragma once
/// A stack of its own that runs until it hands over to another, and goes on from there later. The sanitizers are told
/// of every switch.

#include <cstddef>
#include <memory>

namespace wengert::emulator {

class Fiber {
 public:
  /// Will call body(argument), which never returns and throws nothing.
  Fiber(void (*body)(void*), void* argument);
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  /// A suspended fiber is abandoned: destructors on its stack do not run.
  ~Fiber();

  /// Runs it, and those that it hands over to, until one calls `suspend`. Not from within a fiber. `ordered`:
  /// ThreadSanitizer takes what one side did before a switch as known to the other after it; otherwise it looks at them
  /// as threads without synchronisation.
  void resume(bool ordered = true);
  /// Called on this fiber: returns control to `resume`.
  void suspend();
  /// Called on this fiber: lets `next` go on instead.
  void hand_over(Fiber& next);

 private:
  struct Context;
  struct Side;
  [[noreturn]] static void entry();
  static void go(Side& from, Side& to, bool ordered);

  void (*body_)(void*);
  void* argument_;
  std::unique_ptr<Side> side_;
  static thread_local Side home_;  // of `resume`
  static thread_local Fiber* starting_;
  bool ordered_ = true;
};

}  // namespace wengert::emulator
