#define WENGERT_XSIMD_ARCH xsimd::avx512bw
#define WENGERT_XSIMD_NAME avx512
#define WENGERT_XSIMD_TEXT "avx512"
#include "arch.inc"
