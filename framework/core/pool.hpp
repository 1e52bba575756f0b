#pragma once
// Recycled memory for the small counted objects (tensors, storages): a free list for each thread, so that making and
// dropping a tensor costs no lock and, in a steady state, no malloc.

#include <cstddef>
#include <new>

#include "sanitizer.hpp"

namespace wengert::detail {

template <class T>
class Pool {
 public:
  static void* allocate() {
    FreeList& list = list_;
    if (!list.head) return ::operator new(sizeof(T));
    Link* link = list.head;
    unpoison(link, sizeof(T));
    list.head = link->next;
    --list.length;
    return link;
  }

  static void release(void* memory) noexcept {
    FreeList& list = list_;
    // After the thread's destructors have run (static tensors), or when another thread's objects pile up here.
    if (list.closed || list.length >= limit) return ::operator delete(memory);
    static thread_local Closer closer;
    Link* link = new (memory) Link{list.head};
    list.head = link;
    ++list.length;
    poison(link + 1, sizeof(T) - sizeof(Link));
  }

 private:
  struct Link {
    Link* next;
  };
  static_assert(sizeof(T) >= sizeof(Link));
  // No destructor: it must stay usable while the thread's other objects are being destroyed.
  struct FreeList {
    Link* head = nullptr;
    std::size_t length = 0;
    bool closed = false;
  };
  struct Closer {
    ~Closer() {
      FreeList& list = list_;
      list.closed = true;
      while (list.head) {
        Link* link = list.head;
        list.head = link->next;
        unpoison(link, sizeof(T));
        ::operator delete(link);
      }
    }
  };
  static constexpr std::size_t limit = 1 << 14;
  static inline thread_local FreeList list_{};
};

}  // namespace wengert::detail
