# Writes every ```cpp block of a Markdown file as a program of its own: DIR/<prefix>_<line>.cpp.
# A block with `int main` is a program; one marked ```cpp declarations stands at namespace scope; any other is the body of main.
/^```cpp/ && !inside {
  inside = 1
  declarations = /declarations/
  block = head = ""
  line = FNR
  next
}
/^```/ && inside {
  inside = 0
  file = dir "/" prefix "_" line ".cpp"
  if (block ~ /int main *\(/) {
    printf "%s%s", head, block > file
  } else {
    printf "#include <wengert/wengert.hpp>\n%snamespace wg = wengert;\n", head > file
    if (declarations)
      printf "%s\nint main() {}\n", block > file
    else
      printf "int main() {\n%s}\n", block > file
  }
  close(file)
  next
}
inside && /^#include/ { head = head $0 "\n"; next }
inside { block = block $0 "\n" }
