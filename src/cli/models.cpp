// adjoint models: the models that come along, with their sizes.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "analysis/totals.h"
#include "base/bytes.h"
#include "cli/answer.h"
#include "cli/command.h"
#include "train/bound_model.h"

namespace adjoint {

namespace {

int run(bool as_json) {
  nlohmann::json out = nlohmann::json::array();
  if (!as_json)
    std::cout << fmt::format("{:<20} {:>18} {:>8}  {}\n", "preset", "parameters", "context",
                             "text");
  for (const std::string& preset : known_presets()) {
    const BoundModel model(find_model(preset), {});
    const int64_t parameters =
        num_parameters(model.forward(1, std::min<int64_t>(model.context(), 16)));
    if (as_json) {
      out.push_back({{"name", preset},
                     {"file", model.text().file},
                     {"params", parameters},
                     {"context", model.context()},
                     {"settings", model.settings()}});
    } else {
      std::cout << fmt::format("{:<20} {:>18} {:>8}  {}\n", preset, with_commas(parameters),
                               model.context(), model.text().file);
    }
  }
  if (as_json) {
    print_answer("models", {{"models", std::move(out)}});
  } else {
    std::cout << "\nadjoint show --model PRESET --text prints a text to change and save as a file "
                 "of one's own.\n";
  }
  return kDone;
}

}  // namespace

void add_models(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("models", "list the models that come along");
  auto as_json = std::make_shared<bool>(false);
  command->add_flag("--json", *as_json, "as JSON");
  command->footer("Example:\n  adjoint models");
  command->callback([as_json, &action] { action = [as_json] { return run(*as_json); }; });
}

}  // namespace adjoint
