// adjoint edit as the studio's server runs it: a request goes in, JSON comes out, and a file is
// written only where that is asked for.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/temp_folder.h"
#include "cli/outcome.h"

namespace adjoint {
namespace {

const std::string kText = "# mine\naxes hidden=4   # width\nmodel x f32[batch, hidden]:\n  y = x\n";

class CliEdit : public testing::Test {
 protected:
  void SetUp() override { write_file_atomically(file(), kText); }
  std::string file() const { return (folder_ / "my.scheme").string(); }
  Outcome edit(const nlohmann::json& request, const std::string& flags = "") {
    const std::string path = (folder_ / "request.json").string();
    write_file_atomically(path, request.dump());
    return run("edit --request " + path + flags);
  }
  TempFolder folder_;
};

TEST_F(CliEdit, PrintsTheNewTextAndLeavesTheFileAlone) {
  const nlohmann::json request = {{"file", file()},
                                  {"edit", {{"kind", "set"}, {"axis", "hidden"}, {"to", "8"}}}};
  const Outcome o = edit(request);
  ASSERT_EQ(o.code, 0) << o.text;
  const auto answer = nlohmann::json::parse(o.text);
  const std::string wanted =
      "# mine\naxes hidden=8   # width\nmodel x f32[batch, hidden]:\n  y = x\n";
  EXPECT_EQ(answer["text"], wanted);
  EXPECT_EQ(answer["span"]["from"], 19);
  EXPECT_EQ(answer["span"]["to"], 20);
  EXPECT_EQ(read_file(file()), kText);
  EXPECT_EQ(edit(request, " --write").code, 0);
  EXPECT_EQ(read_file(file()), wanted);
}

// What came into the file since the request's text was read is nobody's to lose.
TEST_F(CliEdit, WritesNoFileThatIsNotTheRequestsText) {
  const nlohmann::json edits = {{"kind", "set"}, {"axis", "hidden"}, {"to", "8"}};
  const Outcome o =
      edit({{"file", file()}, {"text", kText + "# old\n"}, {"edit", edits}}, " --write");
  EXPECT_EQ(o.code, 1);
  EXPECT_EQ(o.text, "adjoint: " + file() +
                        ": --write: the file is not the request's 'text', and would be lost\n");
  EXPECT_EQ(read_file(file()), kText);
  EXPECT_EQ(edit({{"file", file()}, {"text", kText}, {"edit", edits}}, " --write").code, 0);
  EXPECT_NE(read_file(file()), kText);
}

TEST_F(CliEdit, KeepsLargeNumbers) {
  const int64_t large = 9007199254740993;  // no double is it
  const Outcome o =
      edit({{"file", file()}, {"edit", {{"kind", "set"}, {"axis", "hidden"}, {"to", large}}}});
  EXPECT_NE(o.text.find("hidden=9007199254740993"), std::string::npos) << o.text;
}

TEST_F(CliEdit, ReadsStandardInput) {
  const Outcome o =
      run("edit", "printf '{\"file\": \"a.scheme\", \"text\": \"model x:\\\\n  y = x\"}' |");
  ASSERT_EQ(o.code, 0) << o.text;
  EXPECT_EQ(nlohmann::json::parse(o.text)["text"], "model x:\n  y = x");
}

TEST_F(CliEdit, RefusesInOneSentence) {
  const auto refused = [&](const nlohmann::json& request, const std::string& sentence) {
    const Outcome o = edit(request, " --write");
    EXPECT_EQ(o.code, 1);
    EXPECT_EQ(o.text, "adjoint: " + sentence + "\n");
    EXPECT_EQ(read_file(file()), kText);
  };
  refused({{"file", file()}, {"edit", {{"kind", "set"}, {"axis", "hiden"}, {"to", "8"}}}},
          "there is no axis 'hiden'; did you mean 'hidden'?");
  refused({{"file", file()}, {"edit", {{"kind", "set"}, {"axis", "hidden"}, {"to", "8 8"}}}},
          "the edit's 'to':1:3: wanted the end of the line, found '8'");
  const Outcome broken = run("edit", "echo '{\"file\"' |");
  EXPECT_EQ(broken.code, 1);
  EXPECT_NE(broken.text.find("the request:2:1: "), std::string::npos) << broken.text;
  // Bytes that are no UTF-8 would not come back as they were.
  write_file_atomically(file(), "# \xff\n" + kText);
  const Outcome o =
      edit({{"file", file()}, {"edit", {{"kind", "set"}, {"axis", "hidden"}, {"to", "8"}}}});
  EXPECT_EQ(o.code, 1);
  EXPECT_EQ(o.text, "adjoint: " + file() + ": this text is not UTF-8, so JSON cannot hold it\n");
}

}  // namespace
}  // namespace adjoint
