/// Reading text: what becomes ids, what is held out, and what each failure says.

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "file_tools.hpp"
#include "wengert/data.hpp"
#include "wengert/error.hpp"

namespace data = wengert::data;
namespace fs = std::filesystem;
using namespace wengert::testing;
using Ids = std::vector<std::int64_t>;

namespace {

std::string write(const TemporaryFolder& folder, const char* name, const std::string& content) {
  write_bytes(folder.file(name), content);
  return folder.file(name);
}

}  // namespace

TEST_CASE("data: UTF-8 and back") {
  const std::string text = "a\u00e9\u20ac\U0001F600";
  CHECK(data::from_utf8(text) == U"a\u00e9\u20ac\U0001F600");
  CHECK(data::to_utf8(data::from_utf8(text)) == text);
  // Overlong, a surrogate, cut off, a lone continuation, beyond U+10FFFF: byte by byte, and nothing is lost.
  for (const std::string& broken : {std::string("\xC0\x80"), std::string("\xED\xA0\x80"), std::string("x\xE2\x82"),
                                    std::string("\x80"), std::string("\xF5\x80\x80\x80"), std::string("\0", 1)}) {
    CHECK(data::from_utf8(broken).size() == broken.size());
    CHECK(data::to_utf8(data::from_utf8(broken)) == broken);
  }
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  CHECK(data::to_utf8(data::from_utf8(all)) == all);
}

TEST_CASE("data: vocabulary") {
  const std::vector<std::u32string> texts{U"banana", U"cab\u00e9"};
  const data::Vocabulary vocabulary(texts);
  CHECK(vocabulary.size() == 5);  // a b c n é
  CHECK(vocabulary.encode(U"ban\u00e9") == Ids{1, 0, 3, 4});
  CHECK(vocabulary.decode(Ids{2, 0, 1}) == U"cab");
  CHECK_THROWS_WITH_AS(vocabulary.encode(U"bax"), "Vocabulary: character U+0078 at 2 is not one of the 5 known ones",
                       wengert::IndexError);
  CHECK_THROWS_WITH_AS(vocabulary.decode(Ids{0, 5}), "Vocabulary: id 5 at 1 is outside [0, 5)", wengert::IndexError);
}

TEST_CASE("data: the end of every file is held out") {
  const TemporaryFolder folder;
  write(folder, "b", "0123456789");
  write(folder, "a", "abcdefghijklmnopqrstuvwxyz");
  write(folder, ".hidden", "zzz");
  write(folder, "empty", "");
  fs::create_symlink("a", folder.path / "link");
  fs::create_directory(folder.path / "sub");
  const data::TextCorpus corpus = data::read_corpus(folder.path.string());
  CHECK(corpus.vocabulary.size() == 36);
  CHECK(data::to_utf8(corpus.vocabulary.decode(corpus.train.ids)) == "abcdefghijklmnopqrstuvw012345678");
  CHECK(data::to_utf8(corpus.vocabulary.decode(corpus.validation.ids)) == "xyz9");
  CHECK(corpus.train.ends == Ids{23, 32});
  CHECK(corpus.validation.ends == Ids{3, 4});
  const data::TextCorpus one = data::read_corpus((folder.path / "link").string(), 0.5);
  CHECK(data::to_utf8(one.vocabulary.decode(one.validation.ids)) == "nopqrstuvwxyz");
}

TEST_CASE("data: windows stay within a file") {
  const data::TextPart part{{0, 1, 2, 3, 4, 5, 6, 7, 8}, {5, 7, 9}};
  CHECK(part.windows(3) == Ids{0, 1, 2});
  CHECK(part.windows(2) == Ids{0, 1, 2, 3, 5, 7});
  CHECK(part.windows(2, 2) == Ids{0, 2, 5, 7});
  CHECK(part.windows(1, 3) == Ids{0, 3, 5, 7});
  CHECK(part.windows(6).empty());
  CHECK_THROWS_AS(part.windows(0), wengert::ValueError);
  CHECK_THROWS_AS(part.windows(1, 0), wengert::ValueError);
}

TEST_CASE("data: what is wrong with a file") {
  const TemporaryFolder folder;
  const auto says = [](const std::string& path, const char* reason) {
    std::string text;
    try {
      data::read_corpus(path, 0.1, 17);
    } catch (const wengert::IoError& error) {
      text = error.what();
    }
    CHECK(text == "text: cannot read \"" + path + "\": " + reason);
  };
  const std::string name = folder.path.string();
  says(name + "/none", "no such file or folder");
  says(name, "the folder holds no regular file with text");
  says(write(folder, "empty", ""), "the file is empty");
  says(write(folder, "short", std::string(50, 'x')),
       "too short: 45 characters to train on and 5 to validate with, needs 17 of each");
  says("/dev/null", "it is not a regular file");
  if (geteuid() != 0) {  // nothing is unreadable to root
    const std::string locked = write(folder, "locked", "secret");
    fs::permissions(locked, fs::perms::none);
    says(locked, "Permission denied");
  }
  CHECK_THROWS_WITH_AS(data::read_text_file(name),
                       ("text: cannot read \"" + name + "\": it is a folder, not a file").c_str(), wengert::IoError);
  CHECK_THROWS_AS(data::read_corpus(name, 1.5), wengert::ValueError);
}

TEST_CASE("data: the licence texts of a Debian machine") {
  const std::string path = "/usr/share/common-licenses";
  if (!fs::exists(path + "/GPL-3")) {
    MESSAGE("no licence texts on this machine");
    return;
  }
  const data::TextCorpus corpus = data::read_corpus(path, 0.1, 17);
  CHECK(corpus.train.ids.size() <= 9 * corpus.validation.ids.size());
  CHECK(corpus.train.ids.size() + 1000 > 9 * corpus.validation.ids.size());
  CHECK(corpus.train.ids.size() > 100000);
  CHECK(corpus.vocabulary.size() > 60);
  CHECK(corpus.vocabulary.size() < 256);
}
