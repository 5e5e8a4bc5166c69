// adjoint functors: what a stack can name, with laws and parameters.
#include <fmt/format.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "base/file_view.h"
#include "cli/answer.h"
#include "cli/command.h"
#include "edit/functor_json.h"
#include "functors/functor.h"
#include "functors/functor_text.h"
#include "functors/near_functor.h"
#include "functors/stack.h"

namespace adjoint {

namespace {

nlohmann::json to_json(const Functor& f) {
  nlohmann::json params = nlohmann::json::array();
  for (const FunctorParam& p : f.params) {
    nlohmann::json one = {{"name", p.name}, {"words", p.words}, {"list", p.list}};
    one["default"] = p.otherwise.empty() ? nlohmann::json() : nlohmann::json(p.otherwise);
    if (!p.summary.empty()) one["summary"] = p.summary;
    params.push_back(std::move(one));
  }
  nlohmann::json out = {{"name", f.name},
                        {"law", name(f.law)},
                        {"against", f.against_text},
                        {"summary", f.summary},
                        {"default", f.by_default},
                        {"gpu_only", f.on_gpu_only},
                        {"of_forward", f.of_forward},
                        {"params", params}};
  if (!f.text.empty()) {
    out["text"] = f.text;
    out["rules"] = functor_json(f.text, f.name + std::string(kFunctorFile))
                       .value("rules", nlohmann::json::array());
  }
  return out;
}

struct Kind {
  const char* title;
  bool (*has)(const Functor&);
};
constexpr Kind kKinds[] = {
    {"To be named in a stack, such as --stack \"bf16 | checkpoint(every=2)\":\n",
     [](const Functor& f) { return !f.by_default && !f.of_forward; }},
    {"\nOn by default, some on a GPU only (-name switches one off, and\n"
     "naming one switches it on anywhere):\n",
     [](const Functor& f) { return f.by_default; }},
    {"\nOf a forward scheme, when text is generated; no stack names them:\n",
     [](const Functor& f) { return f.of_forward; }},
};

int run(const std::string& which, bool as_json) {
  nlohmann::json out = nlohmann::json::array();
  bool found = which.empty();
  Functor own;
  std::vector<const Functor*> known(all_functors().begin(), all_functors().end());
  const bool from_file = which.ends_with(kFunctorFile);
  if (from_file) {
    own = parse_functor(read_file(which), which);
    settle_law(own, all_functors());
    known = {&own};
  }
  for (const Kind& kind : kKinds) {
    if (!as_json && which.empty()) std::cout << kind.title;
    for (const Functor* f : known) {
      if (!kind.has(*f)) continue;
      if (!which.empty() && !from_file && f->name != which) continue;
      found = true;
      out.push_back(to_json(*f));
      if (as_json) continue;
      std::cout << fmt::format("\n  {}\n      {}\n      law: {}{}{}\n",
                               signature(f->name, f->params), f->summary, name(f->law),
                               f->against_text.empty() ? "" : " against " + f->against_text,
                               f->on_gpu_only ? "; by default on a GPU only" : "");
      if (which.empty()) continue;
      for (const FunctorParam& p : f->params) {
        if (!p.summary.empty()) std::cout << fmt::format("      {}: {}\n", p.name, p.summary);
      }
      if (!f->text.empty()) std::cout << "\n" << f->text;
    }
  }
  if (const std::string file = which + std::string(kFunctorFile); !found && is_visible(file)) {
    fail("there is no functor '", which, "'; did you mean '", file, "'?");
  }
  if (!found) fail("there is no functor '", which, "'", did_you_mean_functor(which));
  return as_json ? print_answer("functors", {{"functors", std::move(out)}}) : kDone;
}

}  // namespace

void add_functors(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("functors", "list the functors, with their laws and parameters");
  struct Flags {
    std::string which;
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  command->add_option("functor", flags->which, "one of them, in full, or a .functor file");
  command->add_flag("--json", flags->json, "as JSON");
  command->footer("Examples:\n  adjoint functors\n  adjoint functors lora");
  command->callback(
      [flags, &action] { action = [flags] { return run(flags->which, flags->json); }; });
}

}  // namespace adjoint
