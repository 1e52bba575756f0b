#include "wengert/npy.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <vector>

#include "../core/replacement.hpp"
#include "half.hpp"
#include "npy_header.hpp"
#include "wengert/error.hpp"

namespace wengert::io {

namespace {

using detail::InputFile;
using detail::NpyHeader;

constexpr std::string_view magic = "\x93NUMPY";
constexpr std::uint64_t largest_header = 1 << 20;  // bytes; NumPy writes more for huge structured types alone

// --- Reading ---

// How values of a type are turned into those of a Tensor: `decode` reads `count` values of `size` bytes each.
struct Decoder {
  std::string_view name;
  std::size_t size;
  DType dtype;
  void (*decode)(const std::byte* from, std::size_t count, bool swap, void* to);
};

template <class Word>
Word load_word(const std::byte* from, bool swap) {
  std::byte bytes[sizeof(Word)];
  std::copy(from, from + sizeof(Word), bytes);
  if (swap) std::reverse(std::begin(bytes), std::end(bytes));
  Word word;
  std::memcpy(&word, bytes, sizeof(Word));
  return word;
}

template <class From, class To>
void decode(const std::byte* from, std::size_t count, bool swap, void* to) {
  auto* out = static_cast<To*>(to);
  // NOLINTNEXTLINE(bugprone-signed-char-misuse): int8 is a number
  for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<To>(load_word<From>(from + i * sizeof(From), swap));
}

void decode_half(const std::byte* from, std::size_t count, bool swap, void* to) {
  auto* out = static_cast<float*>(to);
  for (std::size_t i = 0; i < count; ++i) out[i] = detail::widen_binary16(load_word<std::uint16_t>(from + 2 * i, swap));
}

void decode_bool(const std::byte* from, std::size_t count, bool /*swap*/, void* to) {
  auto* out = static_cast<std::int32_t*>(to);
  for (std::size_t i = 0; i < count; ++i) out[i] = from[i] != std::byte{0};
}

constexpr Decoder decoders[] = {
    {"f4", 4, DType::float32, decode<float, float>},
    {"f8", 8, DType::float64, decode<double, double>},
    {"f2", 2, DType::float32, decode_half},
    {"i4", 4, DType::int32, decode<std::int32_t, std::int32_t>},
    {"i8", 8, DType::int64, decode<std::int64_t, std::int64_t>},
    {"b1", 1, DType::int32, decode_bool},
    {"i1", 1, DType::int32, decode<std::int8_t, std::int32_t>},
    {"u1", 1, DType::int32, decode<std::uint8_t, std::int32_t>},
    {"i2", 2, DType::int32, decode<std::int16_t, std::int32_t>},
    {"u2", 2, DType::int32, decode<std::uint16_t, std::int32_t>},
    {"u4", 4, DType::int64, decode<std::uint32_t, std::int64_t>},
    {"u8", 8, DType::int64, decode<std::uint64_t, std::int64_t>},  // a negative result is one that does not fit
};

struct Layout {
  const Decoder* decoder;
  bool swap;
};

Layout layout_of(const InputFile& file, const std::string& descr) {
  std::string_view name = descr;
  char order = '=';
  if (!name.empty() && std::string_view("<>=|").find(name[0]) != std::string_view::npos) {
    order = name[0];
    name.remove_prefix(1);
  }
  const auto* found =
      std::find_if(std::begin(decoders), std::end(decoders), [&](const Decoder& d) { return d.name == name; });
  if (found == std::end(decoders))
    file.fail(fmt::format("descr {} is none of the types that can be read: bool, integers, float16, float32, float64",
                          detail::in_quotes(descr)));
  constexpr char native = std::endian::native == std::endian::little ? '<' : '>';
  return {found, (order == '<' || order == '>') && order != native};
}

NpyHeader read_header(const InputFile& file, std::uint64_t& data_offset) {
  const auto need = [&](std::uint64_t bytes) {
    if (file.size() < bytes)
      file.fail(fmt::format("file shorter than header says: need {}, have {}", bytes, file.size()));
  };
  std::byte start[12] = {};
  need(magic.size() + 4);
  file.read(0, start, std::min<std::size_t>(sizeof(start), file.size()));
  if (std::memcmp(start, magic.data(), magic.size()) != 0) file.fail("it does not begin as .npy files do");
  const int major = std::to_integer<int>(start[6]), minor = std::to_integer<int>(start[7]);
  if (major < 1 || major > 3 || minor != 0) file.fail(fmt::format("unknown version {}.{}", major, minor));
  const std::uint64_t header_offset = major == 1 ? 10 : 12;
  need(header_offset);
  std::uint64_t length = 0;
  for (std::uint64_t i = header_offset; i-- > 8;) length = length << 8 | std::to_integer<std::uint64_t>(start[i]);
  if (length > largest_header)
    file.fail(fmt::format("a header of {} bytes; at most {} are allowed", length, largest_header));
  data_offset = header_offset + length;
  need(data_offset);
  std::string text(length, '\0');
  file.read(header_offset, text.data(), length);
  return detail::parse_npy_header(file, text);
}

// From the first axis running fastest to the last.
template <class T>
void reorder(const Shape& shape, const T* from, T* to) {
  std::int64_t strides[Shape::max_rank], index[Shape::max_rank] = {}, stride = 1, place = 0;
  for (std::int64_t axis = 0; axis < shape.rank(); ++axis) {
    strides[axis] = stride;
    stride *= shape[axis];
  }
  for (std::int64_t i = 0; i < shape.numel(); ++i) {
    to[i] = from[place];
    for (std::int64_t axis = shape.rank(); axis-- > 0;) {
      place += strides[axis];
      if (++index[axis] < shape[axis]) break;
      place -= index[axis] * strides[axis];
      index[axis] = 0;
    }
  }
}

}  // namespace

Tensor load_npy(const std::string& path, Backend& backend) {
  const InputFile file("npy", path);
  std::uint64_t offset = 0;
  const NpyHeader header = read_header(file, offset);
  const auto [decoder, swap] = layout_of(file, header.descr);
  const auto count = static_cast<std::uint64_t>(header.shape.numel());
  std::uint64_t needed = 0;
  if (__builtin_mul_overflow(count, decoder->size, &needed) || __builtin_add_overflow(needed, offset, &needed))
    file.fail("a shape of more than 2^64 - 1 bytes");
  if (needed > file.size())
    file.fail(fmt::format("file shorter than header says: need {}, have {}", needed, file.size()));
  if (needed < file.size()) file.fail(fmt::format("{} bytes behind the last value", file.size() - needed));

  detail::HostTensor out(header.shape, decoder->dtype, backend);
  const std::size_t width = size_of(decoder->dtype);
  const bool reordered = header.fortran_order && header.shape.rank() > 1;
  std::vector<std::uint64_t> in_file_order(reordered ? (count * width + 7) / 8 : 0);
  auto* const to = static_cast<std::byte*>(reordered ? in_file_order.data() : out.data());
  std::byte piece[1 << 15];
  for (std::uint64_t done = 0; done < count;) {
    const std::size_t some = std::min<std::uint64_t>(count - done, sizeof(piece) / decoder->size);
    file.read(offset, piece, some * decoder->size);
    decoder->decode(piece, some, swap, to + done * width);
    offset += some * decoder->size;
    done += some;
  }
  if (decoder->name == "u8") {
    const auto* values = reinterpret_cast<const std::int64_t*>(to);
    if (std::any_of(values, values + count, [](std::int64_t value) { return value < 0; }))
      file.fail("a uint64 above 2^63 - 1, which int64 cannot hold");
  }
  if (reordered && width == 4)
    reorder(header.shape, reinterpret_cast<const std::uint32_t*>(to), static_cast<std::uint32_t*>(out.data()));
  if (reordered && width == 8)
    reorder(header.shape, reinterpret_cast<const std::uint64_t*>(to), static_cast<std::uint64_t*>(out.data()));
  return out.finish();
}

// --- Writing ---

void save_npy(const Tensor& tensor, const std::string& path) {
  static_assert(std::endian::native == std::endian::little, "'<' below");
  if (!tensor.defined())
    throw Error(fmt::format("npy: cannot write {}: the tensor is undefined", detail::in_quotes(path)));
  const DType dtype = tensor.dtype();
  const Shape& shape = tensor.shape();
  const std::string extents = fmt::format("({}{})", fmt::join(shape, ", "), shape.rank() == 1 ? "," : "");
  std::string header = fmt::format("{{'descr': '<{}{}', 'fortran_order': False, 'shape': {}, }}",
                                   is_floating(dtype) ? 'f' : 'i', size_of(dtype), extents);
  constexpr std::size_t before = 10, alignment = 64;  // magic, version and length; the header ends with a line feed
  header.resize((before + header.size() + 1 + alignment - 1) / alignment * alignment - before - 1, ' ');
  header += '\n';

  std::string start(magic);
  start += {'\1', '\0', static_cast<char>(header.size() & 0xFF), static_cast<char>(header.size() >> 8)};
  const detail::HostValues values(tensor);
  wengert::detail::Replacement file("npy", path);
  file.write(start + header);
  file.write(values.data(), values.bytes());
  file.commit();
}

}  // namespace wengert::io
