// Typical mistakes, one list of them (mistakes.txt): the whole answer and the exit code of each.
#include <gtest/gtest.h>

#include <regex>
#include <sstream>

#include "base/file.h"
#include "base/temp_folder.h"
#include "cli/outcome.h"

namespace adjoint {
namespace {

struct Mistake {
  std::string title, command;
  int code = 0;
  std::string answer;
};

// Writes the list's files into a folder.
std::vector<Mistake> read_mistakes(const std::filesystem::path& folder) {
  std::istringstream in(read_file(std::filesystem::path(SOURCE_DIR) / "tests/cli/mistakes.txt"));
  std::vector<Mistake> all;
  std::string file, text;
  const auto end_file = [&] {
    if (!file.empty()) write_file_atomically(folder / file, text);
    file.clear();
    text.clear();
  };
  for (std::string line; std::getline(in, line);) {
    if (!file.empty() && line.starts_with("  ")) {
      std::istringstream words(line);
      std::string word;
      int times = 1;
      words >> word;
      std::string content = line.substr(2);
      if (word == "repeat") {
        words >> times >> std::ws;
        std::getline(words, content);
      }
      while (times-- > 0) text += content + "\n";
      continue;
    }
    end_file();
    if (line.starts_with("file ")) file = line.substr(5);
    if (line.starts_with("## "))
      all.push_back({.title = line.substr(3), .command = {}, .answer = {}});
    if (line.starts_with("$ adjoint ")) all.back().command = line.substr(10);
    if (!line.empty() && line[0] >= '0' && line[0] <= '9') {
      all.back().code = line[0] - '0';
      all.back().answer += line.substr(2) + "\n";
    }
  }
  end_file();
  return all;
}

TEST(Mistakes, GetTheAnswersOfTheList) {
  const TempFolder folder;
  const std::vector<Mistake> all = read_mistakes(folder / ".");
  ASSERT_GE(all.size(), 20u);
  for (const Mistake& mistake : all) {
    SCOPED_TRACE(mistake.title + ": adjoint " + mistake.command);
    // With as many threads as there are cores, whatever the tests run with.
    const Outcome o =
        run(mistake.command, "cd " + (folder / ".").string() + "; env -u OMP_NUM_THREADS",
            mistake.code == 0 ? "2>&1 >/dev/null" : "2>&1");
    EXPECT_EQ(o.code, mistake.code);
    EXPECT_EQ(o.text, mistake.answer);
  }
}

TEST(Mistakes, MoreThreadsThanCoresAreTold) {
  const Outcome o = run("plan --model char --batch 2 --threads 1000");
  EXPECT_EQ(o.code, 0) << o.text;
  EXPECT_TRUE(std::regex_search(
      o.text, std::regex("^adjoint: warning: 1000 threads: this machine has [0-9]+ cores?, so "
                         "threads wait for each other\n")))
      << o.text;
  EXPECT_EQ(run("plan --model char --batch 2 --threads 1").text.find("warning"), std::string::npos);
}

// A word that is no path means a folder near it only where that holds a model.
TEST(Mistakes, NamesOfModelsAreNotTakenForWhateverLiesAround) {
  const TempFolder folder;
  const std::filesystem::path out = folder / "weights";
  std::filesystem::create_directory(out);
  const auto answer = [&](const char* model) {
    return run(std::string("plan --model ") + model, "cd " + (folder / ".").string() + ";").text;
  };
  EXPECT_NE(answer("wieghts").find("wanted a folder with a config.json"), std::string::npos)
      << answer("wieghts");
  EXPECT_NE(answer("./wieghts").find("did you mean './weights'?"), std::string::npos)
      << answer("./wieghts");
  write_file_atomically(out / "run.json", "{}");
  EXPECT_NE(answer("wieghts").find("did you mean 'weights'?"), std::string::npos)
      << answer("wieghts");
}

// Flags of the whole program stand before the command; only some of them take a value.
TEST(Mistakes, FlagsOfTheWholeProgramAreNoCommands) {
  for (const char* flags : {"--tell-every 5", "--tell-every=5"}) {
    EXPECT_EQ(run(std::string(flags) + " trian").text,
              "adjoint: there is no command 'trian'; did you mean 'train'?\n");
  }
}

}  // namespace
}  // namespace adjoint
