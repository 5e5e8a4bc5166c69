#include "train/replicas.h"

#include <algorithm>
#include <cmath>

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

}  // namespace

void check_replicas(const Run& run, int64_t step) {
  const Scheme& scheme = run.scheme();
  const Communicator& world = run.seat()->world();
  std::vector<Value> values = inputs_of(scheme, Role::kParameter);
  const std::vector<Value> states = inputs_of(scheme, Role::kState);
  values.insert(values.end(), states.begin(), states.end());
  run.synchronize();
  std::vector<uint64_t> mine;
  std::vector<std::byte> bytes;
  for (const Value v : values) {
    const int64_t element = size_of(scheme[v].type.dtype).count;
    bytes.resize(scheme[v].type.bytes().count);
    run.read(v, bytes.data());
    uint64_t hash = 0;
    // Padding of a piece is nobody's.
    for (const ShardRun& r : run.runs_of(v)) {
      hash = hash_of(bytes.data() + r.local * element, r.count * element, hash);
    }
    mine.push_back(hash);
  }
  std::vector<uint64_t> all(mine.size() * world.size());
  world.all_gather(bytes_of(mine), bytes_of(all)).wait();
  for (size_t i = 0; i < values.size(); ++i) {
    std::map<std::vector<int>, std::vector<int>> holders;  // ranks by piece
    for (int rank = 0; rank < world.size(); ++rank) {
      holders[piece_of(scheme[values[i]], coordinates_of(rank, scheme.mesh))].push_back(rank);
    }
    for (const auto& held : holders) {
      const std::vector<int>& ranks = held.second;
      const auto hash = [&](int rank) { return all[rank * mine.size() + i]; };
      const auto alike = [&](int rank) {
        return std::ranges::count_if(ranks, [&](int r) { return hash(r) == hash(rank); });
      };
      const int usual = *std::ranges::max_element(ranks, {}, alike);
      std::vector<int> same, other;
      for (const int rank : ranks) (hash(rank) == hash(usual) ? same : other).push_back(rank);
      if (other.empty()) continue;
      throw MachineError(join_parts("--check-replicas: after step ", step, " '",
                                    to_string(scheme[values[i]].source), "' of ", name_ranks(other),
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
