#define WENGERT_XSIMD_ARCH xsimd::sse2
#define WENGERT_XSIMD_NAME sse2
#define WENGERT_XSIMD_TEXT "sse2"
#include "arch.inc"
