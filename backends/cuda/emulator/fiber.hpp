#pragma once
/// A stack of its own that runs until it suspends itself, and goes on from there. The sanitizers are told of every
/// switch.

#include <cstddef>

namespace wengert::emulator {

class Fiber {
 public:
  /// Will call body(argument), which never returns and throws nothing.
  Fiber(void (*body)(void*), void* argument);
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  /// A suspended fiber is abandoned: destructors on its stack do not run.
  ~Fiber();

  /// Runs it until its next `suspend`. Not from within a fiber. `ordered`: ThreadSanitizer takes what happened here
  /// before as known there, and the reverse after; otherwise it looks at both as threads without synchronisation.
  void resume(bool ordered = true);
  /// Called on the fiber: returns control to its `resume`.
  void suspend();

 private:
  struct Stack;
  [[noreturn]] static void entry();
  void arrived();

  void (*body_)(void*);
  void* argument_;
  Stack* stack_;
  bool ordered_ = true;
  // What the sanitizers keep about both sides.
  void* fake_stack_ = nullptr;
  void* outer_fake_stack_ = nullptr;
  const void* outer_bottom_ = nullptr;
  std::size_t outer_size_ = 0;
  void* tsan_ = nullptr;
  void* outer_tsan_ = nullptr;
};

}  // namespace wengert::emulator
