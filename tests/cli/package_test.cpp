// What an installed Adjoint tells of itself: its version, its manual pages, and what may follow on
// a command line. Shells that press TAB are tests/package/completions.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "base/temp_folder.h"
#include "base/version.h"
#include "cli/outcome.h"

namespace adjoint {
namespace {

using Words = std::vector<std::string>;

Words lines_of(const std::string& text) {
  std::istringstream in(text);
  Words lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

// The first line says what kind they are; the others are words.
Words complete(const std::string& words) {
  const Outcome o = run("complete " + words);
  EXPECT_EQ(o.code, 0) << o.text;
  Words lines = lines_of(o.text);
  for (std::string& line : lines) line = line.substr(0, line.find('\t'));
  return lines;
}

// All commands, by way of what completes: "train", "bench step".
void add_commands(const std::string& above, Words& all) {
  for (const std::string& word : complete(above + "''")) {
    if (word == "words" || word == "files" || word == "folders" || word.starts_with("-")) continue;
    if (complete(above + word).size() < 2) continue;  // the value of a positional
    if (run(above + word + " --help").text.find("adjoint " + above + word) == std::string::npos) {
      continue;
    }
    all.push_back(above + word);
    if (word == "bench" || word == "tokenizer") add_commands(word + " ", all);
  }
}
const Words& commands() {
  static const Words all = [] {
    Words found;
    add_commands("", found);
    return found;
  }();
  return all;
}

// "--model", with the rest of its lines of help, up to the next flag.
std::map<std::string, std::string> flags_of(const std::string& command) {
  std::map<std::string, std::string> flags;
  std::string* last = nullptr;
  const std::regex flag(R"(^  (?:-\w,)?(--[a-z0-9-]+)(.*))");
  for (const std::string& line : lines_of(run(command + " --help").text)) {
    std::smatch found;
    if (std::regex_match(line, found, flag)) {
      last = &(flags[found[1]] = found[2]);
    } else if (last && line.starts_with("      ")) {
      *last += line;
    } else {
      last = nullptr;
    }
  }
  return flags;
}

TEST(Version, TellsCommitAndWhatIsBuiltIn) {
  const Outcome text = run("--version");
  ASSERT_EQ(text.code, 0) << text.text;
  EXPECT_EQ(lines_of(text.text)[0], std::string("adjoint ") + kVersion);
  const auto told = nlohmann::json::parse(run("--version --json").text);
  EXPECT_EQ(told["version"], kVersion);
  EXPECT_EQ(told["build_type"].get<std::string>().empty(), false);
  for (const char* key : {"compiler", "onednn"}) {
    EXPECT_NE(text.text.find(told[key].get<std::string>()), std::string::npos) << key;
  }
  for (const std::string library : told["mpi"]) EXPECT_TRUE(std::filesystem::exists(library));
  if (told["commit"].is_null()) {
    EXPECT_NE(text.text.find("without a git repository"), std::string::npos) << text.text;
    return;
  }
  const std::string commit = told["commit"];
  EXPECT_NE(text.text.find("commit    " + commit), std::string::npos) << text.text;
  EXPECT_TRUE(std::regex_match(told["commit_date"].get<std::string>(),
                               std::regex("[0-9]{4}-[0-9]{2}-[0-9]{2}")));
  const std::string known = "git -c safe.directory='*' -C " SOURCE_DIR " cat-file -e " + commit;
  EXPECT_EQ(std::system(known.c_str()), 0) << commit;
}

TEST(Manual, HasAPageForEveryCommandWithEveryFlag) {
  ASSERT_GE(commands().size(), 25u);
  const TempFolder folder;
  ASSERT_EQ(run("man --out " + (folder / "man1").string()).code, 0);
  for (const std::string& command : commands()) {
    std::string page = run("man " + command).text;
    std::string name = "adjoint-" + command + ".1";
    std::replace(name.begin(), name.end(), ' ', '-');
    EXPECT_TRUE(std::filesystem::exists(folder / "man1" / name)) << name;
    for (size_t at; (at = page.find("\\-")) != page.npos;) page.erase(at, 1);
    for (const auto& [flag, help] : flags_of(command)) {
      EXPECT_NE(page.find(flag), std::string::npos) << command << " " << flag;
    }
  }
}

TEST(Manual, RefusesAnUnknownCommand) {
  const Outcome o = run("man trian");
  EXPECT_EQ(o.code, 1);
  EXPECT_NE(o.text.find("did you mean 'train'?"), std::string::npos) << o.text;
}

// groff warns of requests that it does not know and of fonts that are left open.
TEST(Manual, IsReadWithoutWarnings) {
  if (std::system("groff --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "no groff";
  for (const char* page : {"", "train", "launch", "plan", "eval"}) {
    const Outcome o = run(std::string("man ") + page + " | groff -man -ww -Tascii -z");
    EXPECT_EQ(o.text, "") << page;
  }
}

TEST(Complete, KnowsWhatMayFollow) {
  EXPECT_EQ(complete("gen"), (Words{"words", "generate"}));
  EXPECT_EQ(complete("train --schedule ''"), (Words{"words", "cosine", "wsd", "constant"}));
  EXPECT_EQ(complete("train --schedule=co"),
            (Words{"words", "--schedule=cosine", "--schedule=constant"}));
  EXPECT_EQ(complete("train --stack 'bf16 | checkp'"), (Words{"words", "bf16 | checkpoint"}));
  EXPECT_EQ(complete("train --stack 'bf16 | -fuse_ep'"), (Words{"words", "bf16 | -fuse_epilogue"}));
  EXPECT_EQ(complete("plan --model gpt2-"),
            (Words{"files", "gpt2-medium", "gpt2-large", "gpt2-xl"}));
  EXPECT_EQ(complete("plan --model char --set he"), (Words{"words open", "heads="}));
  EXPECT_EQ(complete("plan --set layers=2 he"), (Words{"words open", "heads="}));
  EXPECT_EQ(complete("train --out run"), (Words{"folders"}));
  EXPECT_EQ(complete("convert a"), (Words{"folders"}));
  EXPECT_EQ(complete("train --lr 1"), (Words{"words"}));
  EXPECT_EQ(complete("launch -n 4 -- train --log-"), (Words{"words", "--log-every"}));
  EXPECT_EQ(complete("help tutor"), (Words{"words", "tutorial"}));
  EXPECT_EQ(complete("nothing such --x"), (Words{"words"}));
}

TEST(Complete, LeavesOutWhatWasSaidButNotWhatMayBeSaidAgain) {
  const auto has = [](const Words& words, const std::string& word) {
    return std::count(words.begin(), words.end(), word) == 1;
  };
  EXPECT_TRUE(has(complete("train --"), "--seed"));
  const Words rest = complete("train --seed 1 --data a --");
  EXPECT_FALSE(has(rest, "--seed"));
  EXPECT_TRUE(has(rest, "--data"));
}

// cli/values.cpp must say what every flag takes. These take any text.
TEST(Complete, NamesTheValueOfEveryFlag) {
  const std::set<std::string> any = {"--prompt",  "--system",  "--stop",   "--text",
                                     "--special", "--weights", "--filter", "--mpirun"};
  for (const std::string& command : commands()) {
    for (const auto& [flag, help] : flags_of(command)) {
      if (any.count(flag) > 0) continue;
      EXPECT_FALSE(help.starts_with(" TEXT") && help.find('{') == help.npos)
          << command << " " << flag << help;
    }
  }
}

// Choices that are written in cli/values.cpp are those of the help.
TEST(Complete, OffersChoicesThatTheHelpSpeaksOf) {
  int choices = 0;
  for (const std::string& command : commands()) {
    for (const auto& [flag, help] : flags_of(command)) {
      if (!help.starts_with(" {")) continue;
      const std::string rest = help.substr(help.find('}'));
      for (const std::string& word : complete(command + " " + flag + " ''")) {
        if (word == "words") continue;
        EXPECT_NE(rest.find(word), std::string::npos) << command << " " << flag << " " << word;
        ++choices;
      }
    }
  }
  EXPECT_GT(choices, 20);
}

}  // namespace
}  // namespace adjoint
