#include "fiber.hpp"

#include <sys/mman.h>
#include <ucontext.h>

#include <new>

#include "sanitizers.hpp"

namespace wengert::emulator {

namespace {

constexpr std::size_t page = 4096;
// A kernel's variables, also as large as unoptimised and sanitized builds make them. Pages appear when they are used.
constexpr std::size_t stack_bytes = 64 * page;

}  // namespace

// --- Switching stacks. The system's own swapcontext asks the kernel for the signal mask, a hundred times the cost. ---

#if defined(__x86_64__)

// Saves the registers that a call preserves on the present stack, and goes on where another stack saved its own. It
// jumps instead of returning: the processor expects a return to lead back to its call.
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
  popq %rcx
  jmpq *%rcx
.size wengert_switch_stack, .-wengert_switch_stack
)");

struct Fiber::Context {
  void* top = nullptr;

  void start(char* stack, void (*entry)()) {
    // What wengert_switch_stack expects: six registers, where to go on, and a return address that is never used.
    auto** at = reinterpret_cast<void**>(stack + stack_bytes);
    *--at = nullptr;
    *--at = reinterpret_cast<void*>(entry);
    for (int i = 0; i < 6; ++i) *--at = nullptr;
    top = at;
  }
  static void exchange(Context& from, Context& to) { wengert_switch_stack(&from.top, to.top); }
};

#else

struct Fiber::Context {
  ucontext_t context{};

  void start(char* stack, void (*entry)()) {
    getcontext(&context);
    context.uc_stack.ss_sp = stack;
    context.uc_stack.ss_size = stack_bytes;
    makecontext(&context, entry, 0);
  }
  static void exchange(Context& from, Context& to) { swapcontext(&from.context, &to.context); }
};

#endif

// A stack, and what the sanitizers want to know of it.
struct Fiber::Side {
  Context context{};
  const void* bottom = nullptr;
  std::size_t size = 0;
  void* fake_stack = nullptr;
  void* tsan = nullptr;
};

thread_local Fiber::Side Fiber::home_;
thread_local Fiber* Fiber::starting_ = nullptr;

Fiber::Fiber(void (*body)(void*), void* argument) : body_(body), argument_(argument), side_(std::make_unique<Side>()) {
  // Below the stack lies a page that traps.
  void* memory =
      mmap(nullptr, page + stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mprotect(memory, page, PROT_NONE);
  char* const bottom = static_cast<char*>(memory) + page;
  side_->bottom = bottom, side_->size = stack_bytes;
  side_->context.start(bottom, &Fiber::entry);
  side_->tsan = tsan_create_fiber();
}

Fiber::~Fiber() {
  tsan_destroy_fiber(side_->tsan);
  asan_forget(const_cast<void*>(side_->bottom), stack_bytes);
  munmap(static_cast<char*>(const_cast<void*>(side_->bottom)) - page, page + stack_bytes);
}

void Fiber::entry() {
  Fiber& self = *starting_;
  asan_finish_switch(nullptr, &home_.bottom, &home_.size);  // it was started by `resume`
  self.body_(self.argument_);
  __builtin_unreachable();
}

void Fiber::go(Side& from, Side& to, bool ordered) {
  asan_start_switch(&from.fake_stack, to.bottom, to.size);
  tsan_switch_to_fiber(to.tsan, ordered);
  Context::exchange(from.context, to.context);
  asan_finish_switch(from.fake_stack, nullptr, nullptr);
}

void Fiber::resume(bool ordered) {
  ordered_ = ordered;
  starting_ = this;
  home_.tsan = tsan_current_fiber();
  go(home_, *side_, ordered);
}

void Fiber::suspend() { go(*side_, home_, ordered_); }

void Fiber::hand_over(Fiber& next) { go(*side_, *next.side_, ordered_); }

}  // namespace wengert::emulator
