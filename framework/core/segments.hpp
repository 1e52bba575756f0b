#pragma once
// Large blocks, cut from segments of memory and joined again when they come back: what one block leaves can serve
// others of any size, so that activations and gradients, which are needed one after the other, share their memory.
// Knows addresses only, and touches nothing behind them. Not thread-safe: Memory locks.

#include <algorithm>
#include <cstddef>
#include <deque>
#include <vector>

namespace wengert::detail {

// A part of a segment, taken or free. Two free pieces are never neighbours.
struct Piece {
  char* data = nullptr;
  std::size_t bytes = 0;
  Piece *before = nullptr, *after = nullptr;  // neighbours in the segment
  bool free = false;
};

class Segments {
 public:
  // The smallest free piece of at least `bytes` bytes; what it has beyond them stays free. Null if there is none.
  Piece* take(std::size_t bytes) {
    const auto found = std::lower_bound(free_.begin(), free_.end(), bytes,
                                        [](const Piece* piece, std::size_t wanted) { return piece->bytes < wanted; });
    if (found == free_.end()) return nullptr;
    Piece* piece = *found;
    Piece* rest = piece->bytes > bytes ? make(piece->data + bytes, piece->bytes - bytes, piece, piece->after) : nullptr;
    leave(place(piece));
    if (rest) {
      if (piece->after) piece->after->before = rest;
      piece->after = rest;
      piece->bytes = bytes;
      enter(rest);
    }
    return piece;
  }

  // Takes over a segment, of which nothing is taken.
  void add(void* data, std::size_t bytes) { enter(make(static_cast<char*>(data), bytes, nullptr, nullptr)); }

  void give(Piece* piece) noexcept {
    if (Piece* next = piece->after; next && next->free) {
      leave(place(next));
      join(piece, next);
    }
    if (Piece* last = piece->before; last && last->free) {
      leave(place(last));
      join(last, piece);
      piece = last;
    }
    enter(piece);
  }

  // Calls release(data, bytes) for every segment of which nothing is taken, and forgets it.
  template <class Release>
  void release_whole(Release release) {
    std::erase_if(free_, [&](Piece* piece) {
      if (piece->before || piece->after) return false;
      release(piece->data, piece->bytes);
      forget(piece);
      return true;
    });
  }

 private:
  using Place = std::vector<Piece*>::iterator;

  static bool precedes(const Piece* a, const Piece* b) {
    return a->bytes != b->bytes ? a->bytes < b->bytes : a->data < b->data;
  }
  Place place(Piece* piece) { return std::lower_bound(free_.begin(), free_.end(), piece, precedes); }
  void enter(Piece* piece) noexcept {
    piece->free = true;
    free_.insert(place(piece), piece);  // there is room: see make
  }
  void leave(Place at) noexcept {
    (*at)->free = false;
    free_.erase(at);
  }
  void join(Piece* piece, Piece* next) noexcept {
    piece->bytes += next->bytes;
    piece->after = next->after;
    if (next->after) next->after->before = piece;
    forget(next);
  }

  // Room is made here for every piece to be free, so that giving one back cannot fail.
  Piece* make(char* data, std::size_t bytes, Piece* before, Piece* after) {
    if (!unused_) {
      if (free_.capacity() == pieces_.size()) free_.reserve(2 * pieces_.size() + 8);
      unused_ = &pieces_.emplace_back();
    }
    Piece* piece = unused_;
    unused_ = piece->after;
    *piece = {data, bytes, before, after};
    return piece;
  }
  void forget(Piece* piece) noexcept {
    piece->after = unused_;
    unused_ = piece;
  }

  std::vector<Piece*> free_;  // by size, then address: the lowest fits first
  std::deque<Piece> pieces_;
  Piece* unused_ = nullptr;  // pieces for later, linked by `after`
};

}  // namespace wengert::detail
