// Random meshes of up to 8 ranks, with random stacks on random small models: every step must be
// refused in one sentence or obey the laws of all functors that were named. The ranks are threads.
#pragma once
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "base/temp_folder.h"
#include "laws/composition.h"
#include "laws/judge.h"
#include "models/test_models.h"
#include "run/rank_bits.h"
#include "schedules/random_lists.h"
#include "train/bound_model.h"

namespace adjoint {

struct DrawnMesh {
  std::string model, stack, optimizer = "adamw";
  std::string lists;  // of a random schedule
  int64_t batch = 1, context = 8;
  int blocks = 0;             // 0: as many as the model has
  nlohmann::json sizes = {};  // of the model, beside these
  std::string describe() const {
    return model + " " + (sizes.empty() ? "" : sizes.dump()) + ", " +
           (blocks > 0 ? std::to_string(blocks) + " blocks, " : "") + std::to_string(batch) +
           " samples of " + std::to_string(context) + ", " + optimizer + ": " + stack + lists;
  }
};

// A pipeline as an item of a stack, and what it asks of the rest.
struct DrawnStages {
  std::string item, lists;
  int stages = 1, pieces = 1, parts = 1;
};

// One of ours, or a random list, which is written to `folder`.
inline DrawnStages drawn_stages(std::mt19937& random, const std::filesystem::path& folder) {
  const auto below = [&](size_t n) { return static_cast<int>(random() % n); };
  DrawnStages drawn{.item = {}, .lists = {}, .stages = 2 + below(3), .parts = 1 + below(4)};
  const std::vector<std::string> ours = {"1f1b",  "gpipe", "zero_bubble", "zb_h2",
                                         "zb_1p", "zb_2p", "interleaved"};
  std::string schedule = below(2) == 0 ? "" : ours[below(ours.size())];
  int chunks = 1;
  if (schedule == "interleaved") {
    chunks = 2;
    drawn.parts = drawn.stages * (1 + below(2));
  } else if (schedule.empty()) {
    chunks = 1 + below(2);
    const Schedule made = RandomLists(random, drawn.stages, drawn.parts, chunks).made();
    const std::filesystem::path file = folder / "random.schedule";
    std::ofstream(file) << (drawn.lists = print(made));
    schedule = '"' + file.string() + '"';
  }
  drawn.pieces = drawn.stages * chunks;
  drawn.item = "pipeline(" + std::to_string(drawn.stages) + ", schedule=" + schedule +
               ", parts=" + std::to_string(drawn.parts) + ", chunks=" + std::to_string(chunks) +
               ")";
  return drawn;
}

// The same on every machine: a function of the seed alone. Where there is a folder for lists, the
// mesh has an axis of stages.
inline DrawnMesh drawn_mesh(uint32_t seed, const std::filesystem::path& folder = {}) {
  std::mt19937 random(seed);
  const auto below = [&](size_t n) { return static_cast<int>(random() % n); };
  const auto one_of = [&](const std::vector<std::string>& list) {
    return list[below(list.size())];
  };
  DrawnMesh drawn;
  drawn.model = one_of({"char", "char", "llama-tiny", "moe", "odd", "hybrid"});
  // Widths that ranks divide, and that they do not.
  drawn.sizes = {{"vocab", 36 + below(6)}};
  if (drawn.model == "char") {
    drawn.sizes.update({{"hidden", 24 * (1 + below(2))}, {"heads", 12}});
  }
  if (drawn.model != "odd") drawn.sizes["ffn"] = below(2) == 0 ? 48 : 41 + below(8);
  drawn.optimizer = below(4) == 0 ? one_of({"lion", "muon", "adafactor", "sgd"}) : "adamw";
  std::vector<std::string> items;
  DrawnStages stages;
  if (!folder.empty()) {
    stages = drawn_stages(random, folder);
    items.push_back(stages.item);
    if (!stages.lists.empty()) drawn.lists = "\n" + stages.lists;
    drawn.blocks = stages.pieces + below(2);
  }
  const int most = 8 / stages.stages;
  int data = 1 + below(most);
  const bool tensors = below(3) > 0;
  if (tensors) {
    // As many as divide the heads of keys, of which llama-tiny has two.
    const int wanted = drawn.model == "char"         ? 2 + below(3)
                       : drawn.model == "llama-tiny" ? 2
                                                     : 2 * (1 + below(2));
    const int tensor = std::min(wanted, most);
    if (tensor == 3) drawn.context = 12;
    data = 1 + below(most / tensor);
    items.push_back("tensor_parallel(" + std::to_string(tensor) +
                    one_of({"", ", sequence=yes", ", sequence=shards"}) + ")");
  }
  if (data > 1 || (!tensors && folder.empty())) {
    items.push_back("data_parallel(" + std::to_string(data) + one_of({"", ", reduce=part"}) + ")");
  }
  if (data > 1 && below(3) > 0) items.push_back("zero(" + std::to_string(1 + below(3)) + ")");
  std::vector<std::string> others = matrix_items();
  for (const char* more :
       {"bf16(gradients=bf16)", "checkpoint(block)", "checkpoint(all)", "accumulate(2)",
        "accumulate(3)", "lora(rank=2, on=attention)", "quantize(int8, group=8) | lora(rank=4)",
        "quantize(nf4, group=8) | lora(rank=4)", "bucket", "qat(group=tensor)"}) {
    others.emplace_back(more);
  }
  std::erase_if(others, [](const std::string& item) {
    return item.starts_with("data_parallel") || item.starts_with("tensor_parallel") ||
           item.starts_with("pipeline");
  });
  for (int n = below(4); n > 0; --n) {
    const std::string item = one_of(others);
    items.push_back(item);
    std::erase_if(others, [&](const std::string& other) {
      return other.substr(0, other.find('(')) == item.substr(0, item.find('('));
    });
  }
  const bool named = std::any_of(items.begin(), items.end(), [](const std::string& item) {
    return item.starts_with("pad_rows");
  });
  if (below(4) == 0 && !named) items.emplace_back("pad_rows(least=4)");
  for (const std::string& item : items) drawn.stack += (drawn.stack.empty() ? "" : " | ") + item;
  // Even or not; sometimes so few that a rank has one sample, or none.
  drawn.batch = data * stages.parts + below(2 * static_cast<size_t>(data) + 3);
  return drawn;
}

inline Subject drawn_subject(const DrawnMesh& drawn) {
  StepOptions options;
  options.eps = 1e-2;  // as in verify
  options.optimizer = drawn.optimizer;
  if (drawn.model == "moe" || drawn.model == "odd" || drawn.model == "hybrid") {
    std::map<std::string, double> settings = {{"batch", static_cast<double>(drawn.batch)},
                                              {"seq", static_cast<double>(drawn.context)}};
    for (const auto& [name, size] : drawn.sizes.items()) {
      settings[drawn.model == "odd" ? "runes" : name] = size;
    }
    if (drawn.blocks > 0) settings[drawn.model == "odd" ? "fathoms" : "layers"] = drawn.blocks;
    return {.forward = test_model(drawn.model, settings), .options = options, .seeds = {1}};
  }
  nlohmann::json settings = {{"layers", 2}, {"dropout", 0.1}};
  settings.update(drawn.sizes);
  if (drawn.blocks > 0) settings["layers"] = drawn.blocks;
  const BoundModel bound(find_model(drawn.model),
                         {.batch = drawn.batch, .context = drawn.context, .settings = settings});
  return {.forward = bound.forward(), .options = options, .seeds = {1}};
}

struct MeshCounts {
  int right = 0, refused = 0, wrong = 0;
};

inline void judge_drawn(uint32_t seed, const DrawnMesh& drawn, MeshCounts& counts) {
  SCOPED_TRACE("seed " + std::to_string(seed) + ", " + drawn.describe());
  Judge judge(drawn_subject(drawn));
  Stack stack;
  try {
    stack = parse_stack(drawn.stack);
    judge.built(stack);
  } catch (const Error& e) {
    ++counts.refused;
    EXPECT_STRNE(e.what(), "");
    std::printf("seed %u refused, %s: %s\n", seed, drawn.describe().c_str(), e.what());
    return;
  }
  bool right = true;
  for (size_t i = 0; i < stack.functors.size(); ++i) {
    if (stack.functors[i].by_default) continue;
    const Verdict v = judge.judge(stack, i);
    right &= v.ok;
    EXPECT_TRUE(v.ok) << v.functor << " is off by " << v.error << " at " << v.tensor << " where "
                      << v.allowed << " is allowed";
  }
  // The judge looks at every call. Collectives that are under way meanwhile must change no bit.
  const Scheme& step = judge.built(stack).scheme;
  if (num_ranks(step.mesh) > 1) {
    const bool same = bits_after(step, {.poison = true}) ==
                      bits_after(step, {.overlap = false, .one_by_one = true});
    EXPECT_TRUE(same) << "collectives and messages under way change bits";
    right &= same;
  }
  ++(right ? counts.right : counts.wrong);
}

inline MeshCounts fuzz_meshes(uint32_t first, uint32_t count, bool with_stages = false) {
  MeshCounts counts;
  const TempFolder folder;
  for (uint32_t seed = first; seed < first + count; ++seed) {
    const DrawnMesh drawn = drawn_mesh(seed, with_stages ? folder / "" : "");
    try {
      judge_drawn(seed, drawn, counts);
    } catch (const std::exception& e) {
      ++counts.wrong;
      ADD_FAILURE() << "seed " << seed << ", " << drawn.describe() << ": " << e.what();
    }
  }
  return counts;
}

}  // namespace adjoint
