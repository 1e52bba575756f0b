#pragma once
/// Single tensors in NumPy's .npy files (numpy.lib.format).

#include <string>

#include "wengert/tensor.hpp"

namespace wengert::io {

/// Reads versions 1, 2 and 3, either byte order, C or Fortran order. float32, float64, int32 and int64 stay what they
/// are; float16 becomes float32; bool, int8, int16, uint8 and uint16 become int32; uint32 and uint64 become int64.
/// Throws IoError: a file that is cut, longer than its header says or not what it claims to be, a type without numbers
/// (structured, object, text) or without a place here (complex, long double), a uint64 above 2^63 - 1.
Tensor load_npy(const std::string& path, Backend& backend = current_backend());

/// Writes what `numpy.load` reads: version 1, aligned to 64 bytes, little-endian, C order. The file is replaced as a
/// whole, as `save_safetensors` does. Throws IoError.
void save_npy(const Tensor& tensor, const std::string& path);

}  // namespace wengert::io
