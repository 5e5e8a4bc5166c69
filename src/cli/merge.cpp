// adjoint merge: what a stack added beside linear maps becomes part of them.
#include "train/merge.h"

#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "base/activity.h"
#include "base/text.h"
#include "cli/answer.h"
#include "cli/command.h"

namespace adjoint {

namespace {

struct MergeFlags {
  std::string run, out, weights;
  bool json = false;
};

int run(const MergeFlags& flags) {
  const MergeResult result = [&] {
    const Activity activity("merging");
    return merge_run(flags.run, flags.out, flags.weights);
  }();
  if (flags.json) {
    const nlohmann::json out = {
        {"step", result.step}, {"merged", result.merged}, {"out", flags.out}};
    return print_answer("merge", out, -1);
  }
  int64_t total = 0;
  std::vector<std::string> parts;
  for (const auto& [use, count] : result.merged) {
    total += count;
    parts.push_back(use + " " + std::to_string(count));
  }
  const std::string by_use = parts.empty() ? "" : " (" + join(parts, ", ") + ")";
  const std::string weights = flags.weights.empty() ? "" : " with " + flags.weights;
  std::cout << fmt::format("merged {} linear maps{} of step {}{} into {}\n", total, by_use,
                           result.step, weights, flags.out);
  return kDone;
}

}  // namespace

void add_merge(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("merge", "make a plain model of a run with adapters such as lora's");
  auto flags = std::make_shared<MergeFlags>();
  command->add_option("--run", flags->run, "the --out folder of a training run")->required();
  command->add_option("--out", flags->out, "the folder of the plain model")->required();
  command->add_option("--weights", flags->weights,
                      "a state that follows parameters, in their place: ema.average");
  command->add_flag("--json", flags->json, "as JSON");
  command->footer(
      "Example:\n"
      "  adjoint train --init runs/base --data mine.txt --stack 'lora(rank=8)' --out runs/mine\n"
      "  adjoint merge --run runs/mine --out runs/merged\n"
      "  adjoint generate --model runs/merged");
  command->callback([flags, &action] { action = [flags] { return run(*flags); }; });
}

}  // namespace adjoint
