#pragma once
/// Every exception that Wengert throws. The text is one line and names the operation, the offending value and what is
/// allowed.

#include <stdexcept>
#include <string>

namespace wengert {

/// Base of all of them: `catch (const wengert::Error&)` catches everything this library throws on purpose.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Shapes that do not fit together, an axis that does not exist, a count that overflows 64 bits.
struct ShapeError : Error {
  using Error::Error;
};
/// An id, label or position outside its range.
struct IndexError : Error {
  using Error::Error;
};
/// An element type that an operation does not take.
struct DTypeError : Error {
  using Error::Error;
};
/// An option outside its range, such as a dropout probability of 1.5.
struct ValueError : Error {
  using Error::Error;
};
/// An unknown or unusable backend, operands on different backends, or host access to memory that the host cannot see.
struct BackendError : Error {
  using Error::Error;
};
/// A misuse of the tape: no path to the loss, a second backward, a saved value that has changed.
struct TapeError : Error {
  using Error::Error;
};
/// A file that cannot be read or written, or whose content is not what it claims to be.
struct IoError : Error {
  using Error::Error;
};

}  // namespace wengert
