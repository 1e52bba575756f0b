// The kernels for the device.
#include "kernels.inc"
