// Whose the bytes are that are alive at a tier's peak: by block, or tensor by tensor. Each adds up
// to the plan's live peak, and with the gaps to its arena.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace adjoint {

enum class By : uint8_t { kCategory, kBlock, kTensor };
By by_named(std::string_view name);  // refuses other words with the list

// One owner of live bytes.
struct Holding {
  std::string source;  // block[3].qkv.weight:grad, or a call's with "workspace"
  std::string block;   // "block[3]"; "": outside
  Category category = Category::kOther;
  std::string dtype, shape;  // "f32", "[batch=4, seq=64]"; none of a workspace
  Bytes bytes = {0};
  std::string from, to;  // what made it, and what reads it last
};
// At the peak, largest first.
std::vector<Holding> holdings(const Scheme& scheme, const Plan& plan, Tier tier);

// `top`: so many rows of tensors, the rest in one; 0: all of them.
std::string owner_table(const Scheme& scheme, const Plan& plan, By by, int64_t top);

// Adds "by": [...] and "peak_at": {...} and, where the host is used, both with "host_" before.
void add_owners(nlohmann::json& out, const Scheme& scheme, const Plan& plan, By by, int64_t top);

// Two plans by category, side by side.
struct NamedPlan {
  std::string title;
  const Plan& plan;
};
std::string comparison_table(const NamedPlan& a, const NamedPlan& b);

}  // namespace adjoint
