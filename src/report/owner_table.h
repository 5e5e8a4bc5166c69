// Which blocks or tensors own the bytes that are alive at a tier's peak. The rows add up to the
// plan's live peak, and with the gaps to its arena.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace adjoint {

enum class By : uint8_t { kCategory, kBlock, kTensor };
By by_named(std::string_view name);  // refuses other words and lists the valid ones
std::vector<std::string> words_of_by();

// One owner of live bytes.
struct Holding {
  std::string source;  // block[3].qkv.weight:grad, or a call's source and "workspace"
  std::string block;   // "block[3]"; "": outside
  Category category = Category::kOther;
  std::string dtype, shape;  // "f32", "[batch=4, seq=64]"; empty for a workspace
  Bytes bytes = {0};
  std::string from, to;  // the call that makes it, and its last reader
};
// At the peak, largest first.
std::vector<Holding> holdings(const Scheme& scheme, const Plan& plan, Tier tier);

// `top`: how many tensors get a row of their own, 0 for all; the others share one row.
std::string owner_table(const Scheme& scheme, const Plan& plan, By by, int64_t top);

// Adds "by": [...] and "peak_at": {...}, and if the host is used the same with the prefix "host_".
void add_owners(nlohmann::json& out, const Scheme& scheme, const Plan& plan, By by, int64_t top);
// The same of one tier.
void add_owners(nlohmann::json& out, const Scheme& scheme, const Plan& plan, Tier tier, By by,
                int64_t top);

// Two plans by category, side by side.
struct NamedPlan {
  std::string title;
  const Plan& plan;
};
std::string comparison_table(const NamedPlan& a, const NamedPlan& b);

}  // namespace adjoint
