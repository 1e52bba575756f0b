include(GNUInstallDirs)

# wengert_library(<name> SOURCES <files> [INCLUDE <folder>] [PUBLIC <libraries>] [PRIVATE <libraries>])
# makes the library wengert_<name>, alias wengert::<name>.
function(wengert_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "INCLUDE" "SOURCES;PUBLIC;PRIVATE")
  set(target wengert_${name})
  add_library(${target} ${arg_SOURCES})
  add_library(wengert::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name} VERSION ${PROJECT_VERSION}
                                             SOVERSION ${PROJECT_VERSION_MAJOR}
                                             INSTALL_RPATH $ORIGIN)  # shared: the others lie beside it
  target_link_libraries(${target} PUBLIC ${arg_PUBLIC} PRIVATE ${arg_PRIVATE})
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  if(arg_INCLUDE)
    target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/${arg_INCLUDE}>
                                                $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  endif()
  wengert_compile_options(${target})
endfunction()

# What every target of this project is compiled with.
function(wengert_compile_options target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF CXX_STANDARD_REQUIRED ON)
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;$<$<BOOL:${WENGERT_WERROR}>:-Werror>>")
endfunction()
