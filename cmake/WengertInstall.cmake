# `cmake --install`: headers, libraries, and a package that find_package(wengert) finds wherever it was put.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/wengert)

install(TARGETS wengert wengert_plugin wengert_core wengert_optim wengert_report wengert_data wengert_io wengert_layers wengert_backends
        EXPORT wengertTargets)
install(EXPORT wengertTargets NAMESPACE wengert:: DESTINATION ${package_dir})
install(DIRECTORY framework/include/ layers/include/ backends/reference/include/ backends/xsimd/include/
                  backends/onednn/include/
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.hpp")

configure_package_config_file(cmake/wengertConfig.cmake.in wengertConfig.cmake INSTALL_DESTINATION ${package_dir}
                              NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(wengertConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/wengertConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/wengertConfigVersion.cmake
        DESTINATION ${package_dir})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
