// Uses the backend "cuda" where it can be had and says why where it cannot, then leaves while a static object and a
// thread at work still hold tensors: nothing may be thrown any more.
#include <wengert/wengert.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

namespace wg = wengert;

namespace {
wg::Tensor kept;
}

int main() {
  std::string reason;
  if (wg::backend_available("cuda", &reason))
    wg::set_backend("cuda");
  else
    std::printf("%s\n", reason.c_str());
  kept = wg::randn({1000});
  std::thread([own = wg::randn({1000})]() mutable {
    for (;;) own = own * 0.5;
  }).detach();
  std::printf("%s: %.3f\n", std::string(wg::current_backend().name()).c_str(), wg::mean(wg::square(kept)).item());
  std::exit(0);
}
