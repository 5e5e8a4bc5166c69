// adjoint ops: what there is to build schemes with.
#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "cli/answer.h"
#include "cli/command.h"
#include "functors/optimizer_text.h"
#include "ops/words.h"

namespace adjoint {

namespace {

std::string map_of(const OpDef& op) {
  if (!op.samples || op.samples().empty()) return "";
  const Sample sample = op.samples().back();
  return to_string(index_map_of({op.name, sample.inputs, sample.attrs}));
}

std::string kind(const OpDef& op) { return op.body ? "body" : op.view ? "view" : "kernel"; }

nlohmann::json op_as_json(const OpDef& op) {
  return {{"name", op.name},      {"signature", signature(op)}, {"callable", !op.params.empty()},
          {"kind", kind(op)},     {"effect", name(op.effect)},  {"index_map", map_of(op)},
          {"summary", op.summary}};
}

// One that has no morphism: neither an effect nor an index map.
nlohmann::json other_as_json(std::string_view name, const std::string& signature, const char* kind,
                             std::string_view summary) {
  return {{"name", name},
          {"signature", signature},
          {"callable", std::string_view(kind) == "word"},
          {"kind", kind},
          {"summary", summary}};
}

std::string_view summary_of(const Optimizer& optimizer) {
  return optimizer.op ? optimizer.op->summary : std::string_view(optimizer.text->summary);
}

int list_as_json() {
  nlohmann::json out = nlohmann::json::array();
  for (const OpDef* op : all_ops()) out.push_back(op_as_json(*op));
  for (const OpDef& word : notation_words()) {
    out.push_back(other_as_json(word.name, signature(word), "word", word.summary));
  }
  for (const std::string& called : known_optimizers()) {
    const Optimizer o = find_optimizer(called, {});
    out.push_back(other_as_json(o.name, signature(o.name, o.params), "optimizer", summary_of(o)));
  }
  return print_answer("ops", {{"ops", std::move(out)}});
}

int list() {
  const auto entry = [](const std::string& signature, std::string_view summary) {
    std::cout << fmt::format("  {}\n      {}\n", signature, summary);
  };
  const auto ops = [&](bool callable) {
    for (const OpDef* op : all_ops()) {
      if (op->params.empty() == callable) continue;
      entry(signature(*op), op->summary);
      std::cout << fmt::format("      {}, {}", kind(*op), name(op->effect));
      const std::string map = map_of(*op);
      std::cout << (map.empty() ? "\n" : "; " + map + "\n");
    }
  };
  std::cout << "In a scheme's text (every call also takes name= and frozen=):\n";
  ops(true);
  std::cout << "\nWords of that text which are no ops:\n";
  for (const OpDef& word : notation_words()) entry(signature(word), word.summary);
  std::cout << "\nMade by functors and by other ops:\n";
  ops(false);
  std::cout << "\nOptimizers, for --optimizer (a text of one's own is a file, my.optimizer):\n";
  for (const std::string& called : known_optimizers()) {
    const Optimizer o = find_optimizer(called, {});
    entry(signature(o.name, o.params), summary_of(o));
  }
  return kDone;
}

}  // namespace

void add_ops(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("ops", "list the ops, the words of a model's text and the optimizers");
  auto as_json = std::make_shared<bool>(false);
  command->add_flag("--json", *as_json, "as JSON");
  command->footer(
      "Index maps have a letter per axis: a letter that the result lacks is summed.\n"
      "Example:\n  adjoint ops --json");
  command->callback(
      [as_json, &action] { action = [as_json] { return *as_json ? list_as_json() : list(); }; });
}

}  // namespace adjoint
