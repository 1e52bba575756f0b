// Matrix products by cuBLAS. The library is opened at the first product: it is large, and programs that train tables
// alone never need it.

#include <cublas_v2.h>
#include <dlfcn.h>

#include <cstdlib>
#include <mutex>
#include <string>

#include "check.hpp"
#include "runtime.hpp"
#include "wengert/error.hpp"

#define WENGERT_TEXT_OF(text) #text
#define WENGERT_TEXT(macro) WENGERT_TEXT_OF(macro)

namespace wengert::cuda::inline WENGERT_CUDA_BUILD {

namespace {

class Cublas {
 public:
  Cublas() {
    constexpr const char* file = "libcublas.so." WENGERT_TEXT(CUBLAS_VER_MAJOR);
    library_ = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library_) throw BackendError(std::string("cuda: matmul needs cuBLAS: ") + dlerror());
    find(describe_, "cublasGetStatusString");
    find(single_, "cublasSgemmStridedBatched_64");
    find(double_, "cublasDgemmStridedBatched_64");
    decltype(&cublasCreate_v2) create;
    decltype(&cublasSetStream_v2) set_stream;
    decltype(&cublasSetMathMode) set_math_mode;
    find(create, "cublasCreate_v2");
    find(set_stream, "cublasSetStream_v2");
    find(set_math_mode, "cublasSetMathMode");
    check(create(&handle_));
    check(set_stream(handle_, static_cast<cudaStream_t>(stream())));
    const char* tf32 = std::getenv("WENGERT_CUDA_TF32");
    if (tf32 && std::string_view(tf32) == "1") check(set_math_mode(handle_, CUBLAS_TF32_TENSOR_OP_MATH));
  }

  // cuBLAS counts along columns: to it our matrices are transposed, and out^T = b^T a^T.
  template <class T, class Function>
  void multiply(Function function, const Gemm<T>& p) {
    const std::lock_guard lock(mutex_);  // a handle serves one thread at a time
    check(function(handle_, p.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N, p.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N, p.n, p.m, p.k,
                   &p.alpha, p.b, p.trans_b ? p.k : p.n, p.stride_b, p.a, p.trans_a ? p.m : p.k, p.stride_a, &p.beta,
                   p.out, p.n, p.stride_out, p.batch));
  }
  void multiply(const Gemm<float>& product) { multiply(single_, product); }
  void multiply(const Gemm<double>& product) { multiply(double_, product); }

 private:
  template <class Function>
  void find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library_, name));
    if (!function) throw BackendError(std::string("cuda: matmul needs a newer cuBLAS: ") + dlerror());
  }
  void check(cublasStatus_t status) const {
    if (status == CUBLAS_STATUS_SUCCESS || unloaded()) return;
    throw BackendError(std::string("cuda: matmul: ") + describe_(status));
  }

  std::mutex mutex_;
  void* library_;
  cublasHandle_t handle_ = nullptr;
  decltype(&cublasGetStatusString) describe_ = nullptr;
  decltype(&cublasSgemmStridedBatched_64) single_ = nullptr;
  decltype(&cublasDgemmStridedBatched_64) double_ = nullptr;
};

Cublas& cublas() {
  static Cublas& instance = *new Cublas;  // never destroyed: at the end of a process the driver may be gone
  return instance;
}

}  // namespace

void gemm(const Gemm<float>& product) { cublas().multiply(product); }
void gemm(const Gemm<double>& product) { cublas().multiply(product); }

}  // namespace wengert::cuda::inline WENGERT_CUDA_BUILD
