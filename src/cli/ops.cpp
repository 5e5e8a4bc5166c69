// adjoint ops: what there is to build schemes with.
#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "ops/words.h"

namespace adjoint {

namespace {

std::string map_of(const OpDef& op) {
  if (!op.samples || op.samples().empty()) return "";
  const Sample sample = op.samples().back();
  return to_string(index_map_of({op.name, sample.inputs, sample.attrs}));
}

std::string kind(const OpDef& op) { return op.body ? "body" : op.view ? "view" : "kernel"; }

int run(bool as_json) {
  if (as_json) {
    nlohmann::json out = nlohmann::json::array();
    for (const OpDef* op : all_ops()) {
      out.push_back({{"name", op->name},
                     {"signature", signature(*op)},
                     {"callable", !op->params.empty()},
                     {"kind", kind(*op)},
                     {"effect", name(op->effect)},
                     {"index_map", map_of(*op)},
                     {"summary", op->summary}});
    }
    std::cout << out.dump(2) << "\n";
    return kDone;
  }
  for (const bool callable : {true, false}) {
    std::cout << (callable ? "In a scheme's text (every call also takes name= and frozen=):\n"
                           : "\nMade by functors and by other ops:\n");
    for (const OpDef* op : all_ops()) {
      if (op->params.empty() == callable) continue;
      std::cout << fmt::format("  {}\n      {}\n", signature(*op), op->summary);
      std::cout << fmt::format("      {}, {}", kind(*op), name(op->effect));
      const std::string map = map_of(*op);
      std::cout << (map.empty() ? "\n" : "; " + map + "\n");
    }
  }
  return kDone;
}

}  // namespace

void add_ops(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("ops", "list the ops: signature, effect, index map");
  auto as_json = std::make_shared<bool>(false);
  command->add_flag("--json", *as_json, "as JSON");
  command->footer(
      "Index maps have a letter per axis: a letter that the result lacks is summed.\n"
      "Example:\n  adjoint ops --json");
  command->callback([as_json, &action] { action = [as_json] { return run(*as_json); }; });
}

}  // namespace adjoint
