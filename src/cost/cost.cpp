#include "cost/cost.h"

#include <algorithm>

#include "analysis/totals.h"
#include "base/error.h"
#include "cost/collective.h"
#include "kernels/backend.h"

namespace adjoint {

bool is_product(std::string_view op) { return op_named(op).multiplies; }

std::string call_key(const Scheme& scheme, const Morphism& m) {
  std::string key = m.op;
  for (const auto& [name, attr] : m.attrs) {
    // Keys of random numbers and origins differ from call to call, and do not change its time.
    if (name != "key" && !is_bookkeeping(name)) key += "|" + name + "=" + to_string(attr);
  }
  for (const Value v : m.inputs) key += "|" + to_string(scheme[v].type);
  key += " ->";
  for (const Value v : m.outputs) key += "|" + to_string(scheme[v].type);
  return key;
}

double bytes_moved(const Scheme& scheme, const Morphism& m) {
  double written = 0, read = 0;
  for (const Value out : m.outputs) {
    written += static_cast<double>(scheme[out].type.bytes().count);
  }
  for (const Value in : m.inputs) {
    const auto bytes = static_cast<double>(scheme[in].type.bytes().count);
    // Of a table only the rows that are looked up are read.
    read += op_named(m.op).table >= 0 ? std::min(bytes, written) : bytes;
  }
  return read + written;
}

namespace {

// The rate of products in a dtype that the sheet does not name is that of float32.
double product_rate(const DeviceSheet& sheet, const Scheme& scheme, const Morphism& m) {
  std::string dtype(name(scheme[m.inputs[0]].type.dtype));
  const auto math = m.attrs.find("math");
  if (math != m.attrs.end()) dtype = std::get<std::string>(math->second);
  const auto found = sheet.products.find(dtype);
  return found != sheet.products.end() ? found->second : sheet.products.at("f32");
}

}  // namespace

double Costs::by_sheet(const Scheme& scheme, const Morphism& m) const {
  const double cores = sheet.per_core ? threads : 1;
  const double bytes = bytes_moved(scheme, m);
  const OpDef& op = op_named(m.op);
  if (const auto spoken = collective_call(scheme, m)) {
    return seconds_of(*spoken, sheet.fabric) + sheet.launch;
  }
  if (op.moves) {
    const double link = sheet.link > 0 ? sheet.link : sheet.most_bandwidth / 2;
    return bytes / 2 / link + sheet.launch;  // a copy reads as much as it writes
  }
  double rate = sheet.arithmetic * cores;
  if (op.cost != CostClass::kRows) rate = product_rate(sheet, scheme, m) * cores;
  if (op.cost == CostClass::kAttention) rate *= sheet.attention;
  if (op.cost == CostClass::kAttentionGrad) rate *= sheet.attention_backward;
  const double flops = static_cast<double>(count_flops(call_of(scheme, m)));
  const double bandwidth = std::min(sheet.bandwidth * cores, sheet.most_bandwidth);
  return std::max(flops / rate, bytes / bandwidth) + sheet.launch;
}

// Looks a product up as if its operands were dense, as almost all are; a product that was timed
// with other strides is not found.
std::optional<double> Costs::by_contest(const Scheme& scheme, const Morphism& m) const {
  const Kernel* kernel = tuned.empty() ? nullptr : backend_of(Target::kCuda).find(m.op);
  if (!kernel || !kernel->products) return std::nullopt;
  const OpCall call = call_of(scheme, m);
  KernelTerms terms{.target = Target::kCuda, .deterministic = deterministic};
  if (sheet.workspace.count > 0) terms.workspace_cap = sheet.workspace;
  const auto dense = [&](Value v) { return dense_strides(scheme[v].type); };
  const std::vector<std::string> products =
      kernel->products(kernel_call(call, scheme, m, terms, dense));
  double sum = sheet.launch * static_cast<double>(products.size());
  for (const std::string& product : products) {
    const auto found = tuned.find(product);
    if (found == tuned.end()) return std::nullopt;
    sum += found->second;
  }
  return products.empty() ? std::nullopt : std::optional(sum);
}

double Costs::seconds(const Scheme& scheme, const Morphism& m) const {
  if (!measured.empty()) {
    const auto found = measured.find(call_key(scheme, m));
    if (found != measured.end()) return found->second;
  }
  if (const auto contest = by_contest(scheme, m)) return *contest;
  const auto found = ratio.find(m.op);
  return by_sheet(scheme, m) * (found == ratio.end() ? 1 : found->second);
}

void Costs::learn(const TunedProducts& table, const std::string& machine) {
  for (const auto& [product, result] : table.of(machine))
    tuned[product] = result.microseconds * 1e-6;
}

void Costs::learn(const Scheme& scheme, const Timings& timings) {
  std::map<std::string, std::pair<double, double>> sums;  // per op: measured, by the sheet
  for (const Morphism& m : scheme.morphisms) {
    const auto found = timings.find(call_key(scheme, m));
    if (found == timings.end()) continue;
    auto& [real, said] = sums[m.op];
    real += found->second;
    said += by_sheet(scheme, m);
  }
  for (const auto& [op, sum] : sums) {
    if (sum.second > 0) ratio[op] = sum.first / sum.second;
  }
  measured = timings;
}

}  // namespace adjoint
