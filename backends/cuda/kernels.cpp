// The same kernels for the emulator.
#include "kernels.inc"
