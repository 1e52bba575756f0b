#pragma once
/// Backends: who owns memory and runs kernels, and how one is chosen while the program runs.

#include <string>
#include <string_view>
#include <vector>

#include "wengert/dtype.hpp"
#include "wengert/storage.hpp"

namespace wengert {

struct Kernels;

/// One line of a backend's own account of itself.
struct KernelOrigin {
  std::string_view kernel;  ///< "gather_rows"
  std::string_view
      origin;  ///< the backend that wrote the body in use: "xsimd"; "default" for a body made of other kernels
};

/// A named set of kernels and the memory they work on. Backends are made once and live as long as the process.
/// To write one, derive from `reference::Backend` (or implement this) and `register_backend` it; see docs/backends.md.
class Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  virtual std::string_view name() const = 0;
  virtual Memory& memory() const = 0;
  /// The kernels for values of type `dtype`; those for integers are the float32 ones. Throws DTypeError if there are
  /// none.
  virtual Kernels& kernels(DType dtype) = 0;
  /// Which kernels are this backend's own, and where the others come from.
  virtual std::vector<KernelOrigin> kernel_origins() const = 0;
};

/// Makes the backend, or throws BackendError with the reason why this machine cannot run it.
using BackendFactory = Backend& (*)();

/// Adds a backend under `name`; it is made when first asked for. Throws BackendError if the name is taken.
void register_backend(std::string_view name, BackendFactory factory);
/// Names of all registered backends, in order of registration.
std::vector<std::string> backend_names();
/// The backend called `name`. Throws BackendError that lists the registered names, or says why that one cannot run
/// here.
Backend& backend(std::string_view name);
/// True when `backend(name)` would succeed; otherwise `reason`, if given, receives the error text.
bool backend_available(std::string_view name, std::string* reason = nullptr);

/// The backend of new tensors: that of the innermost BackendScope of this thread, else the one set for the process,
/// else the one named by the environment variable WENGERT_BACKEND, else the one that was registered first: "xsimd".
Backend& current_backend();
/// Chooses the backend of new tensors for the process. Existing tensors stay where they are. On error nothing changes.
void set_backend(std::string_view name);

/// Chooses the backend of new tensors for this thread until the end of the scope.
class BackendScope {
 public:
  explicit BackendScope(std::string_view name);
  explicit BackendScope(Backend& backend);
  BackendScope(const BackendScope&) = delete;
  BackendScope& operator=(const BackendScope&) = delete;
  ~BackendScope();

 private:
  Backend* previous_;
};

/// Number of threads that kernels may use, at least 1. Starts as the number of CPUs this process may run on.
/// The reference backend always uses one.
void set_num_threads(int threads);
int num_threads();

}  // namespace wengert
