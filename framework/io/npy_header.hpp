#pragma once
// The header of an .npy file: a Python dictionary as text.

#include <string>
#include <string_view>

#include "files.hpp"
#include "wengert/tensor.hpp"

namespace wengert::io::detail {

struct NpyHeader {
  std::string descr;
  bool fortran_order = false;
  Shape shape;
};
// Throws IoError, through `file`, for what is no dictionary of exactly these three keys.
NpyHeader parse_npy_header(const InputFile& file, std::string_view text);

}  // namespace wengert::io::detail
