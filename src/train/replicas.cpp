#include "train/replicas.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/hash.h"
#include "comm/texts.h"
#include "scheme/elements.h"
#include "train/saved_tensors.h"
#include "train/state_copy.h"

namespace adjoint {

namespace {

// The coordinates along the axes of the mesh that cut the object: ranks that have them in common
// hold the same elements.
std::vector<int> piece_of(const Object& object, const Coordinates& at) {
  std::vector<int> piece;
  for (const Placement& p : object.attributes.placement) {
    if (p.spread == Spread::kSharded && p.whole > 0) piece.push_back(at.at(p.mesh_axis));
  }
  return piece;
}

// Parameters and state of all ranks, in an order in which all have them: each of them, and what
// this rank holds of it, which is nothing where it is another stage's.
std::vector<std::pair<const Object*, std::optional<Value>>> held_by_all(const Scheme& scheme) {
  std::vector<std::pair<const Object*, std::optional<Value>>> all;
  std::map<std::string, Value> here;
  for (const Value v : scheme.inputs) here.emplace(to_string(scheme[v].source), v);
  for (const Object& object : scheme.of_all_stages) {
    const auto held = here.find(to_string(object.source));
    all.emplace_back(&object, held == here.end() ? std::nullopt : std::optional(held->second));
  }
  if (!scheme.of_all_stages.empty()) return all;
  for (const Role role : {Role::kParameter, Role::kState}) {
    for (const Value v : inputs_of(scheme, role)) all.emplace_back(&scheme[v], v);
  }
  return all;
}

// What a rank tells the others of an object.
struct Print {
  uint64_t held = 0;  // 1, or 0: it holds nothing of it
  uint64_t hash = 0;
};

}  // namespace

void check_replicas(const Run& run, int64_t step) {
  const Scheme& scheme = run.scheme();
  const Communicator& world = run.seat()->world();
  const auto objects = held_by_all(scheme);
  run.synchronize();
  std::vector<Print> mine;
  std::vector<std::byte> bytes;
  for (const auto& [object, value] : objects) {
    Print& print = mine.emplace_back();
    if (!value) continue;
    print.held = 1;
    const int64_t element = size_of(object->type.dtype).count;
    bytes.resize(object->type.bytes().count);
    run.read(*value, bytes.data());
    // Padding of a piece is nobody's.
    for (const ShardRun& r : run.runs_of(*value)) {
      print.hash = hash_of(bytes.data() + r.local * element, r.count * element, print.hash);
    }
  }
  std::vector<Print> all(mine.size() * world.size());
  world.all_gather(bytes_of(mine), bytes_of(all)).wait();
  for (size_t i = 0; i < objects.size(); ++i) {
    const Object& object = *objects[i].first;
    std::map<std::vector<int>, std::vector<int>> holders;  // ranks by piece
    for (int rank = 0; rank < world.size(); ++rank) {
      if (!all[rank * mine.size() + i].held) continue;
      holders[piece_of(object, coordinates_of(rank, scheme.mesh))].push_back(rank);
    }
    for (const auto& held : holders) {
      const std::vector<int>& ranks = held.second;
      const auto hash = [&](int rank) { return all[rank * mine.size() + i].hash; };
      const auto alike = [&](int rank) {
        return std::ranges::count_if(ranks, [&](int r) { return hash(r) == hash(rank); });
      };
      const int usual = *std::ranges::max_element(ranks, {}, alike);
      std::vector<int> same, other;
      for (const int rank : ranks) (hash(rank) == hash(usual) ? same : other).push_back(rank);
      if (other.empty()) continue;
      throw MachineError(join_parts("--check-replicas: after step ", step, " '",
                                    to_string(object.source), "' of ", name_ranks(other),
                                    " is not that of ", name_ranks(same),
                                    ", and all of them should hold the same bits"));
    }
  }
}

std::map<std::string, double> norms_over_ranks(
    const Run& run, const std::map<std::string, std::vector<Value>>& by_name) {
  const Scheme& scheme = run.scheme();
  run.synchronize();
  std::vector<double> squares;
  std::vector<std::byte> bytes;
  for (const auto& [name, values] : by_name) {
    double sum = 0;
    for (const Value v : values) {
      bytes.resize(scheme[v].type.bytes().count);
      run.read(v, bytes.data());
      for (const ShardRun& r : saved_runs(scheme[v], scheme.mesh, run.seat()->coordinates())) {
        for (int64_t k = r.local; k < r.local + r.count; ++k) {
          const double x = load_element(bytes.data(), scheme[v].type.dtype, k);
          sum += x * x;
        }
      }
    }
    squares.push_back(sum);
  }
  run.seat()->world().all_reduce(Dtype::kF64, bytes_of(squares), bytes_of(squares)).wait();
  std::map<std::string, double> norms;
  size_t next = 0;
  for (const auto& [name, values] : by_name) norms[name] = std::sqrt(squares[next++]);
  return norms;
}

}  // namespace adjoint
