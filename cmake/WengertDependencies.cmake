# What the libraries are made of. Nothing here shows in a public header.

find_package(fmt REQUIRED)  # text of numbers: g++ 12 has no <format>

# Pictures of the report library: text, lines and PNG files in one small C library. It has no CMake package.
find_package(PkgConfig REQUIRED)
pkg_check_modules(cairo REQUIRED IMPORTED_TARGET cairo)

# Arrays of the reference backend. Headers only, and looked for as such: their own packages would bring targets into ours.
find_path(XTENSOR_INCLUDE_DIR NAMES xtensor/containers/xarray.hpp xtensor/xarray.hpp REQUIRED)
find_path(XTL_INCLUDE_DIR NAMES xtl/xtl_config.hpp REQUIRED)  # xtensor's own

find_path(XSIMD_INCLUDE_DIR NAMES xsimd/xsimd.hpp REQUIRED)  # registers of the xsimd backend; headers only, as above
find_package(OpenMP REQUIRED COMPONENTS CXX)                 # its threads: the runtime that oneDNN uses as well
