// adjoint functors: what turns a model into a step, in order.
#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "functors/functor.h"

namespace adjoint {

void add_functors(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("functors", "list the functors of a step, with their laws");
  auto as_json = std::make_shared<bool>(false);
  command->add_flag("--json", *as_json, "as JSON");
  command->footer("Example:\n  adjoint functors");
  command->callback([as_json, &action] {
    action = [as_json] {
      nlohmann::json out = nlohmann::json::array();
      for (const Functor* f : all_functors()) {
        out.push_back({{"name", f->name}, {"law", name(f->law)}, {"summary", f->summary}});
        if (!*as_json) {
          std::cout << fmt::format("{}\n    {}\n    law: {}\n", f->name, f->summary, name(f->law));
        }
      }
      if (*as_json) std::cout << out.dump(2) << "\n";
      return int{kDone};
    };
  });
}

}  // namespace adjoint
