#define WENGERT_XSIMD_ARCH xsimd::fma3<xsimd::avx2>
#define WENGERT_XSIMD_NAME avx2
#define WENGERT_XSIMD_TEXT "avx2"
#include "arch.inc"
