#!/bin/sh
# consumer.sh SOURCE BUILD WORK CONFIG...: installs BUILD into WORK/prefix and uses it from outside, as other people's projects do.
# CONFIG... are the options (generator, compiler, flags) for configuring the consumers.
set -eu
source=$1 build=$2 work=$3
shift 3
rm -rf "$work"
mkdir -p "$work"
fail() {
  echo "consumer: $*" >&2
  exit 1
}

cmake --install "$build" --prefix "$work/prefix" >"$work/install.log"
package=$(dirname "$(find "$work/prefix" -name wengertConfig.cmake)")

# Nothing of this machine in what others get.
if grep -rnE -e "$source|$build|-march=native|[\";]/(usr|home|root|opt|tmp|var|work)/" "$package"; then
  fail "the installed package names a path or a processor of the machine that built it"
fi

# Find, build, run. The installed tree is moved first: it must not know where it was put.
mv "$work/prefix" "$work/moved"
cmake -S "$source/tests/consumer" -B "$work/build" "$@" -DCMAKE_PREFIX_PATH="$work/moved" >"$work/configure.log" 2>&1 ||
  { cat "$work/configure.log"; fail "configuring failed"; }
cmake --build "$work/build" || fail "building failed"
"$work/build/consumer" || fail "the consumer returned $?"

# A wrong major version is refused, and told so.
if cmake -S "$source/tests/consumer" -B "$work/version" "$@" -DCMAKE_PREFIX_PATH="$work/moved" -DWANTED_VERSION=99 \
  >"$work/version.log" 2>&1; then
  fail "version 99 was accepted"
fi
grep -q 'compatible with requested version "99"' "$work/version.log" || { cat "$work/version.log"; fail "no word about the version"; }

# Two consumers in one tree.
mkdir "$work/two"
cat >"$work/two/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(two CXX)
find_package(wengert REQUIRED)
add_subdirectory(inner)
add_executable(outer "$source/tests/consumer/main.cpp")
target_link_libraries(outer PRIVATE wengert::wengert)
END
mkdir "$work/two/inner"
sed '/^project/d' "$source/tests/consumer/CMakeLists.txt" >"$work/two/inner/CMakeLists.txt"
cp "$source/tests/consumer/main.cpp" "$work/two/inner"
cmake -S "$work/two" -B "$work/two-build" "$@" -DCMAKE_PREFIX_PATH="$work/moved" >"$work/two.log" 2>&1 ||
  { cat "$work/two.log"; fail "two consumers in one tree do not configure"; }

# The source tree as a folder of somebody's project: its libraries, and nothing else, join in.
mkdir "$work/folder"
cat >"$work/folder/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(folder CXX)
add_subdirectory("$source" wengert)
add_executable(consumer "$source/tests/consumer/main.cpp")
target_link_libraries(consumer PRIVATE wengert::wengert)
if(TARGET wengert_tests OR TARGET landing OR WENGERT_WERROR)
  message(FATAL_ERROR "tests, examples or -Werror leak into other people's projects")
endif()
END
cmake -S "$work/folder" -B "$work/folder-build" "$@" >"$work/folder.log" 2>&1 ||
  { cat "$work/folder.log"; fail "add_subdirectory does not configure"; }
if [ "${WENGERT_CONSUMER_FOLDER:-}" = build ]; then # builds the whole library once more
  cmake --build "$work/folder-build" || fail "add_subdirectory does not build"
  "$work/folder-build/consumer" || fail "the consumer in a folder returned $?"
fi
