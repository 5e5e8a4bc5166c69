// Settings come in layers; what is wrong is named.
#include "train/config.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/error_text.h"
#include "base/file.h"
#include "base/temp_folder.h"
#include "train/resolve_config.h"
#include "train/settings_text.h"

namespace adjoint {
namespace {

using nlohmann::json;

TEST(Config, LaterLayersOverride) {
  const json layers[] = {{{"lr", 0.5}, {"batch", 3}, {"set", {{"layers", 2}, {"dropout", 0.1}}}},
                         {{"lr", 0.25}, {"set", {{"layers", 5}}}}};
  const TrainConfig c = make_config(layers);
  EXPECT_EQ(c.lr, 0.25);
  EXPECT_EQ(c.batch, 3);
  EXPECT_EQ(c.settings["layers"], 5);
  EXPECT_EQ(c.settings["dropout"], 0.1);
}

TEST(Config, NamesWhatIsWrong) {
  const auto error = [](const json& layer) {
    try {
      make_config(std::span(&layer, 1));
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(error({{"stpes", 5}}), "there is no option 'stpes'; did you mean 'steps'?");
  EXPECT_NE(error({{"batch", 0}}).find("'batch': wanted a whole number from 1"), std::string::npos);
  EXPECT_NE(error({{"batch", 1.5}}).find("found 1.5"), std::string::npos);
  EXPECT_NE(error({{"lr", "fast"}}).find("wanted a number, found fast"), std::string::npos);
  EXPECT_NE(error({{"schedule", "sine"}}).find("cosine or wsd or constant"), std::string::npos);
  EXPECT_NE(error({{"set", {{"layers", "two"}}}}).find("'layers'"), std::string::npos);
}

// What would ruin the parameters is refused where somebody trains; a saved run that said it can
// still be read, and go on with another value.
TEST(Config, RefusesToTrainWithoutEps) {
  const json none = {{"data", "x.txt"}, {"eps", 0.0}};
  EXPECT_TRUE(has(error_text([&] { resolve_config({}, none); }),
                  "option 'eps': wanted a number from 1e-20 to 1, found 0"));
  EXPECT_EQ(make_config(std::span(&none, 1)).step.eps, 0);
  const TempFolder folder;
  write_file_atomically(folder / "run.json", json({{"options", none}, {"preset", ""}}).dump());
  write_file_atomically(folder / "model.scheme", "");
  EXPECT_EQ(saved_config(folder / "").config.step.eps, 0);
  const json on = {{"resume", true}, {"out", (folder / "").string()}};
  EXPECT_TRUE(has(error_text([&] { resolve_config({}, on); }), "option 'eps'"));
  json with = on;
  with["eps"] = 1e-8;
  EXPECT_EQ(resolve_config({}, with).config.step.eps, 1e-8);
}

TEST(Config, ReadsToml) {
  const TempFolder folder;
  const auto file = folder / "run.toml";
  write_file_atomically(file, "model = \"ref\"\nlr = 1e-2\nresume = true\n[set]\nlayers = 3\n");
  const json toml = read_toml(file);
  EXPECT_EQ(toml["model"], "ref");
  EXPECT_EQ(toml["lr"], 1e-2);
  EXPECT_EQ(toml["set"]["layers"], 3);
  write_file_atomically(file, "model = \n");
  try {
    read_toml(file);
    ADD_FAILURE() << "a broken TOML file was read";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("run.toml:1:"), std::string::npos) << e.what();
  }
}

TEST(Config, ParsesSettings) {
  EXPECT_EQ(parse_setting("layers=2"), (json{{"layers", 2.0}}));
  EXPECT_THROW(parse_setting("layers"), Error);
  EXPECT_THROW(parse_setting("layers=two"), Error);
  EXPECT_THROW(parse_setting("layers=2x"), Error);
}

}  // namespace
}  // namespace adjoint
