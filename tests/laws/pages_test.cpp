// What the pages about the notations show is run: every block of docs/notation.md and of the
// tutorial is a model that takes a step, or a functor or an optimizer under which laws hold.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/file.h"
#include "base/temp_folder.h"
#include "device/parallel.h"
#include "laws/verify.h"
#include "models/test_models.h"
#include "run/parameters.h"
#include "train/trainer.h"

namespace adjoint {
namespace {

struct Block {
  std::string page, kind, text;
  int line = 0;
};

void PrintTo(const Block& block, std::ostream* out) {
  *out << block.page << ":" << block.line << " (" << block.kind << ")";
}

// ```kind file=name ... ```
std::vector<Block> blocks() {
  std::vector<Block> all;
  for (const char* page : {"notation.md", "tutorial.md"}) {
    const std::string text = read_file(std::string(SOURCE_DIR) + "/docs/" + page);
    int line = 0;
    bool inside = false;
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      const std::string content = text.substr(begin, end - begin);
      begin = end + 1;
      ++line;
      if (content.starts_with("```")) {
        inside = !inside;
        const std::string kind = content.substr(3, content.find(' ') - 3);
        if (inside) all.push_back({page, kind, "", line + 1});
      } else if (inside) {
        all.back().text += content + "\n";
      }
    }
  }
  std::erase_if(all, [](const Block& b) { return b.kind == "sh"; });
  return all;
}

// Lines about some x, in a model that ends in what the last of them names.
std::string around_lines(const std::string& lines) {
  std::string body, last;
  for (size_t begin = 0; begin < lines.size();) {
    const size_t end = lines.find('\n', begin);
    const std::string line = lines.substr(begin, end - begin);
    if (!line.empty() && line[0] != '#') last = line.substr(0, line.find_first_of(" ,"));
    body += "  " + line + "\n";
    begin = end + 1;
  }
  return "axes layers=2 hidden=32 heads=4 ffn=48 context=16 vocab=37\n"
         "model tokens[batch, seq], targets[batch, seq]:\n"
         "  x = embed(tokens, vocab)\n" +
         body + "  loss = cross_entropy(linear(" + last + ", vocab), targets)\n";
}

class Pages : public testing::TestWithParam<Block> {};

TEST_P(Pages, WhatTheyShowIsRun) {
  const Block& block = GetParam();
  const std::string file = block.page + ":" + std::to_string(block.line);
  if (block.kind == "scheme" || block.kind == "scheme-lines") {
    const std::string text = block.kind == "scheme" ? block.text : around_lines(block.text);
    const Scheme forward =
        elaborate(parse_document(text, file), file, {.settings = {{"batch", 2}}});
    const Scheme step = training_step(forward, {});
    adjoint::Run run(step, make_plan(step, {.threads = num_threads()}), {.poison = true});
    initialize(run, 3);
    run.set_number(input_named(step, "rate"), 1e-3);
    write_batch(run, 1);
    for (const Value in : step.inputs) {
      if (step[in].role != Role::kInput || !is_float(step[in].type.dtype)) continue;
      auto* numbers = static_cast<float*>(run.data(in));
      for (int64_t i = 0; i < step[in].type.num_elements(); ++i) numbers[i] = std::sin(0.7f * i);
    }
    run.step();
    const double loss = run.values(step.outputs[0])[0];
    EXPECT_TRUE(std::isfinite(loss)) << text;
    EXPECT_GT(loss, 0) << text;
    return;
  }
  if (block.kind == "optimizer") {
    const TempFolder folder;
    const std::string path = (folder / "shown.optimizer").string();
    write_file_atomically(path, block.text);
    VerifyOptions options{.seeds = 1};
    options.step.optimizer = path;
    const Report report =
        verify_model(find_model(test_model_file("hybrid")), parse_stack("accumulate(2)"), options);
    EXPECT_TRUE(report.ok) << report.reason;
    return;
  }
  ASSERT_EQ(block.kind, "functor") << "a block of a kind that nothing runs";
  const ModelText model = find_model(test_model_file("hybrid"));
  const TempFolder folder;
  const std::string path = (folder / "shown.functor").string();
  write_file_atomically(path, block.text);
  const Report report = verify_model(model, parse_stack(path), {.seeds = 1});
  EXPECT_TRUE(report.ok) << report.reason;
  EXPECT_FALSE(report.functors.empty());
}

INSTANTIATE_TEST_SUITE_P(All, Pages, testing::ValuesIn(blocks()));

// The published designs keep their laws, each in its smallest preset.
class DesignLaws : public testing::TestWithParam<std::string> {};

TEST_P(DesignLaws, Hold) {
  for (const char* stack : {"checkpoint(block) | accumulate(2)", "bf16"}) {
    const Report report = verify_model(find_model(GetParam()), parse_stack(stack), {.seeds = 1});
    EXPECT_TRUE(report.ok) << stack << ": " << report.reason;
  }
}

INSTANTIATE_TEST_SUITE_P(All, DesignLaws, testing::ValuesIn(smallest_presets()),
                         [](const auto& info) { return test_name(info.param); });

}  // namespace
}  // namespace adjoint
