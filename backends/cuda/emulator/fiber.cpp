#include "fiber.hpp"

#include <sys/mman.h>
#include <ucontext.h>

#include <cstdint>
#include <new>

#include "sanitizers.hpp"

namespace wengert::emulator {

namespace {

constexpr std::size_t page = 4096;
// A kernel's variables, also as large as unoptimised and sanitized builds make them. Pages appear when they are used.
constexpr std::size_t stack_bytes = 64 * page;

thread_local Fiber* starting = nullptr;  // whose entry runs next

}  // namespace

// --- Switching stacks. The system's own swapcontext asks the kernel for the signal mask, a hundred times the cost. ---

#if defined(__x86_64__)

// Saves the registers that a call preserves on the present stack, and goes on where another stack saved its own.
extern "C" void wengert_switch_stack(void** save, void* load);
asm(R"(
.text
.p2align 4
.type wengert_switch_stack, @function
.local wengert_switch_stack
wengert_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size wengert_switch_stack, .-wengert_switch_stack
)");

struct Fiber::Stack {
  char* bottom;
  void* inner = nullptr;
  void* outer = nullptr;

  Stack(char* memory, void (*entry)()) : bottom(memory) {
    // What wengert_switch_stack expects: six registers, where to go on, and a return address that is never used.
    auto** top = reinterpret_cast<void**>(memory + stack_bytes);
    *--top = nullptr;
    *--top = reinterpret_cast<void*>(entry);
    for (int i = 0; i < 6; ++i) *--top = nullptr;
    inner = top;
  }
  void enter() { wengert_switch_stack(&outer, inner); }
  void leave() { wengert_switch_stack(&inner, outer); }
};

#else

struct Fiber::Stack {
  char* bottom;
  ucontext_t inner{}, outer{};

  Stack(char* memory, void (*entry)()) : bottom(memory) {
    getcontext(&inner);
    inner.uc_stack.ss_sp = memory;
    inner.uc_stack.ss_size = stack_bytes;
    makecontext(&inner, entry, 0);
  }
  void enter() { swapcontext(&outer, &inner); }
  void leave() { swapcontext(&inner, &outer); }
};

#endif

Fiber::Fiber(void (*body)(void*), void* argument) : body_(body), argument_(argument) {
  // Below the stack lies a page that traps.
  void* memory =
      mmap(nullptr, page + stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mprotect(memory, page, PROT_NONE);
  stack_ = new Stack(static_cast<char*>(memory) + page, &Fiber::entry);
  tsan_ = tsan_create_fiber();
}

Fiber::~Fiber() {
  tsan_destroy_fiber(tsan_);
  asan_forget(stack_->bottom, stack_bytes);
  munmap(stack_->bottom - page, page + stack_bytes);
  delete stack_;
}

void Fiber::entry() {
  Fiber& self = *starting;
  self.arrived();
  self.body_(self.argument_);
  __builtin_unreachable();
}

void Fiber::arrived() { asan_finish_switch(fake_stack_, &outer_bottom_, &outer_size_); }

void Fiber::resume(bool ordered) {
  ordered_ = ordered;
  starting = this;
  outer_tsan_ = tsan_current_fiber();
  asan_start_switch(&outer_fake_stack_, stack_->bottom, stack_bytes);
  tsan_switch_to_fiber(tsan_, ordered);
  stack_->enter();
  asan_finish_switch(outer_fake_stack_, nullptr, nullptr);
}

void Fiber::suspend() {
  asan_start_switch(&fake_stack_, outer_bottom_, outer_size_);
  tsan_switch_to_fiber(outer_tsan_, ordered_);
  stack_->leave();
  arrived();
}

}  // namespace wengert::emulator
