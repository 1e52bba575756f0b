# What the libraries are made of. Nothing here shows in a public header.
find_package(fmt REQUIRED)  # text of numbers; g++ 12 has no <format>
find_package(PkgConfig REQUIRED)
pkg_check_modules(cairo REQUIRED IMPORTED_TARGET cairo)  # pictures of wengert/report.hpp; cairo has no CMake package
# Arrays of the reference backend. Two plain headers-only trees: their own CMake packages would put imported targets into ours.
find_path(XTENSOR_INCLUDE_DIR NAMES xtensor/containers/xarray.hpp xtensor/xarray.hpp REQUIRED)
find_path(XTL_INCLUDE_DIR NAMES xtl/xtl_config.hpp REQUIRED)
# Pictures of the report library: anti-aliased text and lines, and PNG files, in one small C library.
find_path(CAIRO_INCLUDE_DIR NAMES cairo.h PATH_SUFFIXES cairo REQUIRED)
find_library(CAIRO_LIBRARY NAMES cairo REQUIRED)
